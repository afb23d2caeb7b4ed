//! The Python module `toksplice._native`.

mod engine;
mod gather;
mod run;
mod session;
mod text;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<engine::NativeEngine>()?;
    module.add_function(wrap_pyfunction!(engine::normalize, module)?)?;
    module.add_class::<gather::Stretch>()?;
    module.add_function(wrap_pyfunction!(gather::gather, module)?)?;
    module.add_class::<session::NativeSession>()
}
