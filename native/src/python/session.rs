//! `toksplice._native.Session`.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::engine::NativeEngine;
use super::gather::Stretch;
use super::text::run_on;
use crate::engine::Engine;
use crate::interrupt::Interrupted;
use crate::session::{Change, Session};

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
    fn new(engine: &NativeEngine, text: &Bound<'_, PyString>) -> PyResult<Self> {
        let engine = engine.0.clone();
        let session = run_on(text, |text, interrupted| Session::new(&engine, text, interrupted))?;
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
        self.session.ids(start, end).into_pyarray(py)
    }

    /// Bytes [start, end) of the text, for `gather`.
    fn text_stretch(&self, start: usize, end: usize) -> Stretch {
        Stretch::of_text(&self.session, start, end)
    }

    /// The ids of tokens [start, end), for `gather`.
    fn ids_stretch(&self, start: usize, end: usize) -> Stretch {
        Stretch::of_ids(&self.session, start, end)
    }

    /// The spans of tokens [start, end), u32 of shape (tokens, 2).
    fn offsets<'py>(&self, py: Python<'py>, start: usize, end: usize) -> PyResult<Bound<'py, PyArray2<u32>>> {
        spans_array(py, self.session.spans(&self.engine, start, end.min(self.session.tokens())))
    }

    /// Where a scan may restart: a bit for each token, that of the first one lowest.
    fn restarts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.session.restarts())
    }

    /// Put `text` in place of bytes [start, end); `None` when that changes nothing.
    fn splice<'py>(
        &mut self,
        py: Python<'py>,
        start: usize,
        end: usize,
        text: &Bound<'py, PyString>,
    ) -> PyResult<Option<Spliced<'py>>> {
        let fits = start <= end && self.session.is_char_boundary(start) && self.session.is_char_boundary(end);
        if !fits {
            return Err(PyIndexError::new_err("not a stretch of the text between character boundaries"));
        }
        let (engine, session) = (&self.engine, &mut self.session);
        let change = run_on(text, |text, interrupted| spliced(engine, session, (start, end), text, interrupted))?;
        change.map(|change| into_python(py, change)).transpose()
    }

    /// Make `text` the whole text; `None` when it is already. What both have in common at the beginning and at the end
    /// is left as it is.
    fn update<'py>(&mut self, py: Python<'py>, text: &Bound<'py, PyString>) -> PyResult<Option<Spliced<'py>>> {
        let (engine, session) = (&self.engine, &mut self.session);
        let change = run_on(text, |text, interrupted| {
            let left = session.common_prefix(text.as_bytes());
            let right = session.common_suffix(text.as_bytes(), left);
            let middle = &text[left..text.len() - right];
            spliced(engine, session, (left, session.bytes() - right), middle, interrupted)
        })?;
        change.map(|change| into_python(py, change)).transpose()
    }

    /// An independent session that shares memory with this one until either changes.
    fn fork(&self) -> Self {
        Self { engine: self.engine.clone(), session: self.session.clone() }
    }
}

/// A change, and the spans of the ids it brings.
type WithSpans = (Change, Vec<[u32; 2]>);

fn spliced(
    engine: &Engine,
    session: &mut Session,
    stretch: (usize, usize),
    text: &str,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<WithSpans>, Interrupted> {
    let change = session.splice(engine, stretch, text, interrupted)?;
    Ok(change.map(|change| {
        let spans = session.spans(engine, change.keep_left, change.keep_left + change.ids.len());
        (change, spans)
    }))
}

fn into_python<'py>(py: Python<'py>, (change, spans): WithSpans) -> PyResult<Spliced<'py>> {
    Ok((
        change.keep_left,
        change.ids.into_pyarray(py),
        change.keep_right,
        change.first_changed,
        spans_array(py, spans)?,
        change.scanned_chars,
        change.back,
        change.forward,
    ))
}

pub(super) fn spans_array<'py>(py: Python<'py>, spans: Vec<[u32; 2]>) -> PyResult<Bound<'py, PyArray2<u32>>> {
    let count = spans.len();
    spans.into_flattened().into_pyarray(py).reshape([count, 2])
}
