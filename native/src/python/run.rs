//! Long calls: other threads run meanwhile, and Ctrl-C interrupts them.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::interrupt::Interrupted;

/// From so many characters on the interpreter is released while the engine works: below it, that costs more than it gives.
const RELEASE_FROM_CHARACTERS: usize = 4 << 10;

/// Run `work` on a text of so many characters, letting other threads run meanwhile and Ctrl-C interrupt it.
pub fn run<R: Send>(
    py: Python<'_>,
    characters: usize,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<R, Interrupted> + Send,
) -> PyResult<R> {
    if characters < RELEASE_FROM_CHARACTERS {
        return work(&mut || false).map_err(|_| PyKeyboardInterrupt::new_err(()));
    }
    let mut raised = None;
    let result = py.detach(|| {
        let mut look = || {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    raised = Some(error);
                    true
                }
            })
        };
        work(&mut look)
    });
    result.map_err(|_| raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(())))
}
