//! The text of a Python `str`, turned into UTF-8 while other threads run.
//!
//! The interpreter's own UTF-8 of a text that is not ASCII is made under its lock, and stays beside the text for as long as
//! the `str` lives. Here the lock is held for a copy of the code points only.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{ffi, intern};

use super::run::run;
use crate::interrupt::Interrupted;
use crate::utf32::{to_utf8, Unencodable};

/// Run `work` on the UTF-8 of `text`, letting other threads run meanwhile and Ctrl-C interrupt it.
///
/// Raises UnicodeEncodeError for a lone surrogate.
pub fn run_on<R: Send>(
    text: &Bound<'_, PyString>,
    work: impl FnOnce(&str, &mut dyn FnMut() -> bool) -> Result<R, Interrupted> + Send,
) -> PyResult<R> {
    let source = Source::of(text)?;
    let done = run(text.py(), source.len(), |interrupted| match source.utf8() {
        Ok(utf8) => work(&utf8, interrupted).map(Some),
        Err(Unencodable) => Ok(None),
    })?;
    // The interpreter says where the text has no UTF-8, and why.
    let refused = || text.to_str().err().unwrap_or_else(|| PyValueError::new_err("the text has no UTF-8"));
    done.ok_or_else(refused)
}

/// What is taken out of a `str` under the interpreter's lock.
enum Source<'t> {
    /// A text that is ASCII is kept as UTF-8 by the interpreter.
    Ascii(&'t str),
    Points(Vec<u32>),
}

impl<'t> Source<'t> {
    fn of(text: &'t Bound<'_, PyString>) -> PyResult<Self> {
        if text.call_method0(intern!(text.py(), "isascii"))?.is_truthy()? {
            return Ok(Self::Ascii(text.to_str()?));
        }
        code_points(text).map(Self::Points)
    }

    /// Characters.
    fn len(&self) -> usize {
        match self {
            Self::Ascii(text) => text.len(),
            Self::Points(points) => points.len(),
        }
    }

    fn utf8(&self) -> Result<Cow<'t, str>, Unencodable> {
        match self {
            Self::Ascii(text) => Ok(Cow::Borrowed(text)),
            Self::Points(points) => to_utf8(points).map(Cow::Owned),
        }
    }
}

#[allow(unsafe_code)] // CPython's interface to the characters of a str, which PyO3 leaves unwrapped.
fn code_points(text: &Bound<'_, PyString>) -> PyResult<Vec<u32>> {
    let length = text.len()?;
    let mut points = Vec::with_capacity(length);
    // SAFETY: `text` is a str and the interpreter is attached. The call writes at most the given number of u32, for which
    // there is room, or returns null with an exception set.
    let written = unsafe { ffi::PyUnicode_AsUCS4(text.as_ptr(), points.as_mut_ptr(), length as ffi::Py_ssize_t, 0) };
    if written.is_null() {
        return Err(PyErr::fetch(text.py()));
    }
    // SAFETY: without an exception it has written all characters of the str, which are `length`.
    unsafe { points.set_len(length) };
    Ok(points)
}
