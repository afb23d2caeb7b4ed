//! `toksplice._native.gather`: stretches of sessions and other bytes in one, copied once and while other threads run.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::session::Session;

enum What {
    Text,
    Ids,
}

/// A stretch of a session as it was when this was made; it shares the session's memory.
#[pyclass(name = "Stretch", module = "toksplice._native", frozen)]
pub struct Stretch {
    session: Session,
    what: What,
    start: usize,
    end: usize,
}

impl Stretch {
    /// Bytes [start, end) of the text.
    pub fn of_text(session: &Session, start: usize, end: usize) -> Self {
        let end = end.min(session.bytes());
        Self { session: session.clone(), what: What::Text, start: start.min(end), end }
    }

    /// The ids of tokens [start, end), little-endian u32.
    pub fn of_ids(session: &Session, start: usize, end: usize) -> Self {
        let end = end.min(session.tokens());
        Self { session: session.clone(), what: What::Ids, start: start.min(end), end }
    }

    fn size(&self) -> usize {
        let unit = match self.what {
            What::Text => 1,
            What::Ids => size_of::<u32>(),
        };
        (self.end - self.start) * unit
    }

    /// Write it to the beginning of `out`, and return what is left of that.
    fn write<'a>(&self, mut out: &'a mut [u8]) -> &'a mut [u8] {
        match self.what {
            What::Text => self.session.for_text(self.start, self.end, |text| out = put(std::mem::take(&mut out), text)),
            What::Ids => self.session.for_ids(self.start, self.end, |ids| {
                let (here, rest) = std::mem::take(&mut out).split_at_mut(size_of_val(ids));
                for (place, id) in here.chunks_exact_mut(size_of::<u32>()).zip(ids) {
                    place.copy_from_slice(&id.to_le_bytes());
                }
                out = rest;
            }),
        }
        out
    }
}

#[pymethods]
impl Stretch {
    /// Bytes.
    fn __len__(&self) -> usize {
        self.size()
    }
}

#[derive(FromPyObject)]
pub enum Part<'py> {
    Stretch(PyRef<'py, Stretch>),
    Bytes(PyBackedBytes),
}

enum Source<'a> {
    Stretch(&'a Stretch),
    Bytes(&'a [u8]),
}

fn put<'a>(out: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (here, rest) = out.split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    rest
}

/// All of `parts` in one.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // what PyO3 makes of a Python sequence
pub fn gather<'py>(py: Python<'py>, parts: Vec<Part<'py>>) -> PyResult<Bound<'py, PyBytes>> {
    let sources: Vec<Source<'_>> = parts
        .iter()
        .map(|part| match part {
            Part::Stretch(stretch) => Source::Stretch(stretch),
            Part::Bytes(bytes) => Source::Bytes(bytes),
        })
        .collect();
    let mut sizes = sources.iter().map(|source| match source {
        Source::Stretch(stretch) => stretch.size(),
        Source::Bytes(bytes) => bytes.len(),
    });
    let size = sizes.try_fold(0_usize, usize::checked_add);
    let size = size.ok_or_else(|| PyOverflowError::new_err("more bytes than there is memory"))?;
    PyBytes::new_with(py, size, |out| {
        py.detach(|| {
            sources.iter().fold(out, |out, source| match source {
                Source::Stretch(stretch) => stretch.write(out),
                Source::Bytes(bytes) => put(out, bytes),
            });
        });
        Ok(())
    })
}
