//! `toksplice._native.Engine`: made from what Python read in a tokenizer.json.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::session::spans_array;
use super::text::run_on;
use crate::bpe::{Bpe, Symbols};
use crate::engine::{Engine, Program};
use crate::scan::added::AddedToken;
use crate::scan::automaton::Automaton;
use crate::scan::normal::{Form, Normalizer};
use crate::scan::{Levels, Pieces, Prepend};

/// A split level: classes, columns, table (u16, little-endian), and whether it keeps gaps.
type Level = (Vec<u8>, usize, Vec<u8>, bool);
/// An added token: content (in the form in which it is looked for), id, normalized, lstrip, rstrip.
type Added = (String, u32, bool, bool, bool);

#[pyclass(name = "Engine", module = "toksplice._native", frozen)]
pub struct NativeEngine(pub Arc<Engine>);

#[pymethods]
impl NativeEngine {
    #[new]
    #[pyo3(signature = (tokenizer_json, *, levels, normal_form, added, trim_offsets, mark_spaces, prepend, cache_entries))]
    #[allow(clippy::too_many_arguments)] // keyword arguments, one for each field of toksplice.program.Program
    fn new(
        py: Python<'_>,
        tokenizer_json: &[u8],
        levels: Option<Vec<Level>>,
        normal_form: Option<&str>,
        added: Vec<Added>,
        trim_offsets: bool,
        mark_spaces: bool,
        prepend: &str,
        cache_entries: usize,
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            let symbols = if levels.is_some() { Symbols::Bytes } else { Symbols::Characters };
            let model = Bpe::from_json(tokenizer_json, symbols, mark_spaces, cache_entries)?;
            let program = program(levels, normal_form, added, trim_offsets, mark_spaces, prepend)?;
            Ok::<_, String>(Engine::new(program, model))
        });
        Ok(Self(Arc::new(made.map_err(PyValueError::new_err)?)))
    }

    /// The ids of `text`, u32 of shape (tokens,).
    fn encode<'py>(&self, py: Python<'py>, text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let ids = run_on(text, |text, interrupted| self.0.encode(text, interrupted))?;
        Ok(ids.into_pyarray(py))
    }

    /// The spans, as the reference gives them, of tokens that tile `text`: their ids and first bytes.
    fn spans<'py>(
        &self,
        py: Python<'py>,
        text: &[u8],
        ids: PyReadonlyArray1<'_, u32>,
        starts: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let (ids, starts) = (ids.as_slice()?, starts.as_slice()?);
        let spans = py.detach(|| spans_of(&self.0, text, ids, starts));
        spans_array(py, spans.ok_or_else(|| PyValueError::new_err("the tokens do not tile a text in UTF-8"))?)
    }
}

/// `None` when the tokens do not tile the text, or it is not UTF-8.
fn spans_of(engine: &Engine, text: &[u8], ids: &[u32], starts: &[u32]) -> Option<Vec<[u32; 2]>> {
    let is_tiled = starts.first().map_or(text.is_empty(), |&first| first == 0)
        && starts.is_sorted()
        && starts.last().is_none_or(|&last| last as usize <= text.len());
    if ids.len() != starts.len() || !is_tiled || std::str::from_utf8(text).is_err() {
        return None;
    }
    let ends = starts.iter().skip(1).map(|&start| start as usize).chain([text.len()]);
    let tokens = ids.iter().zip(starts.iter().map(|&start| start as usize).zip(ends));
    let spans = tokens.map(|(&id, (start, end))| engine.reference_span(text, id, start, end));
    Some(spans.map(|(start, end)| [start as u32, end as u32]).collect())
}

/// `text` in a normal form, by the engine's tables: for the check against the installed reference.
#[pyfunction]
pub fn normalize(text: &str, form: &str) -> PyResult<String> {
    Ok(named_form(form).map_err(PyValueError::new_err)?.apply(text))
}

fn named_form(name: &str) -> Result<Form, String> {
    Form::parse(name).ok_or_else(|| format!("no normal form is called {name}"))
}

fn program(
    levels: Option<Vec<Level>>,
    normal_form: Option<&str>,
    added: Vec<Added>,
    trim_offsets: bool,
    mark_spaces: bool,
    prepend: &str,
) -> Result<Program, String> {
    let pieces = match levels {
        Some(levels) => Pieces::Split(Levels::new(levels.into_iter().map(level).collect::<Result<_, _>>()?)),
        None => Pieces::Joined(match prepend {
            "never" => Prepend::Never,
            "first" => Prepend::First,
            "always" => Prepend::Always,
            "always_if_absent" => Prepend::AlwaysIfAbsent,
            other => return Err(format!("no way to put a mark before a section is called {other}")),
        }),
    };
    let normalizer = match normal_form {
        Some(name) => Some(Normalizer::form(named_form(name)?)),
        None => mark_spaces.then_some(Normalizer::Mark),
    };
    let (mut raw_tokens, mut normal_tokens) = (Vec::new(), Vec::new());
    for (content, id, normalized, lstrip, rstrip) in added {
        let tokens = if normalized { &mut normal_tokens } else { &mut raw_tokens };
        tokens.push(AddedToken { content, id, lstrip, rstrip });
    }
    Ok(Program { pieces, normalizer, raw_tokens, normal_tokens, trim_offsets })
}

fn level((classes, columns, table, keeps_gaps): Level) -> Result<Automaton, String> {
    let table = table.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    Automaton::new(&classes, columns, table, keeps_gaps)
}
