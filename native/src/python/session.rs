//! `toksplice._native.Session`.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::engine::{run, NativeEngine};
use crate::engine::Engine;
use crate::session::Session;

#[pyclass(name = "Session", module = "toksplice._native")]
pub struct NativeSession {
    engine: Arc<Engine>,
    session: Session,
}

/// keep_left, ids, keep_right, first_changed, offsets, characters scanned, bytes scanned left of the edit and right of it.
type Spliced<'py> = (usize, Bound<'py, PyArray1<u32>>, usize, usize, Bound<'py, PyArray2<u32>>, usize, usize, usize);

#[pymethods]
impl NativeSession {
    #[new]
    fn new(py: Python<'_>, engine: &NativeEngine, text: &str) -> PyResult<Self> {
        let engine = engine.0.clone();
        let session = run(py, text.len(), |interrupted| Session::new(&engine, text, interrupted))?;
        Ok(Self { engine, session })
    }

    /// UTF-8 bytes of the text.
    #[getter]
    fn length(&self) -> usize {
        self.session.bytes()
    }

    /// Tokens of the text.
    #[getter]
    fn total(&self) -> usize {
        self.session.tokens()
    }

    /// Bytes of memory held.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.session.heap_bytes()
    }

    fn is_char_boundary(&self, byte: usize) -> bool {
        self.session.is_char_boundary(byte)
    }

    /// Bytes [start, end) of the text.
    fn text<'py>(&self, py: Python<'py>, start: usize, end: usize) -> Bound<'py, PyBytes> {
        let mut text = Vec::new();
        self.session.copy_text(start, end.min(self.session.bytes()), &mut text);
        PyBytes::new(py, &text)
    }

    /// The ids of tokens [start, end), u32.
    fn ids<'py>(&self, py: Python<'py>, start: usize, end: usize) -> Bound<'py, PyArray1<u32>> {
        let ids: Vec<u32> = self.session.ids_from(start).take(end.saturating_sub(start)).collect();
        ids.into_pyarray(py)
    }

    /// The spans of tokens [start, end), u32 of shape (tokens, 2).
    fn offsets<'py>(&self, py: Python<'py>, start: usize, end: usize) -> PyResult<Bound<'py, PyArray2<u32>>> {
        spans_array(py, self.session.spans(&self.engine, start, end.min(self.session.tokens())))
    }

    /// Put `text` in place of bytes [start, end); `None` when that changes nothing.
    fn splice<'py>(&mut self, py: Python<'py>, start: usize, end: usize, text: &str) -> PyResult<Option<Spliced<'py>>> {
        let fits = start <= end && self.session.is_char_boundary(start) && self.session.is_char_boundary(end);
        if !fits {
            return Err(PyIndexError::new_err("not a stretch of the text between character boundaries"));
        }
        let (engine, session) = (&self.engine, &mut self.session);
        let spliced = run(py, text.len(), |interrupted| {
            let change = session.splice(engine, (start, end), text, interrupted)?;
            Ok(change.map(|change| {
                let spans = session.spans(engine, change.keep_left, change.keep_left + change.ids.len());
                (change, spans)
            }))
        })?;
        let Some((change, spans)) = spliced else { return Ok(None) };
        Ok(Some((
            change.keep_left,
            change.ids.into_pyarray(py),
            change.keep_right,
            change.first_changed,
            spans_array(py, spans)?,
            change.scanned_chars,
            change.back,
            change.forward,
        )))
    }

    /// What to splice to make `text` the whole text: bytes that are the same at the beginning, and at the end.
    fn common(&self, py: Python<'_>, text: &str) -> (usize, usize) {
        py.detach(|| {
            let left = self.session.common_prefix(text.as_bytes());
            (left, self.session.common_suffix(text.as_bytes(), left))
        })
    }

    /// An independent session that shares memory with this one until either changes.
    fn fork(&self) -> Self {
        Self { engine: self.engine.clone(), session: self.session.clone() }
    }
}

fn spans_array<'py>(py: Python<'py>, spans: Vec<[u32; 2]>) -> PyResult<Bound<'py, PyArray2<u32>>> {
    let count = spans.len();
    spans.into_flattened().into_pyarray(py).reshape([count, 2])
}
