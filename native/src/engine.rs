//! A tokenizer, ready to run: the scanner with its tables, and buffers to run it with.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Mutex;

use crate::bpe::Bpe;
use crate::interrupt::{Interrupted, Watch};
use crate::scan::added::{AddedToken, AddedTokens};
use crate::scan::normal::Normalizer;
use crate::scan::{utf8, Layout, Outcome, Pieces, Scanner, Scratch, Sink, Window};
use crate::session::chunk::Lengths;

/// Buffers of one thread at work.
pub struct Workspace {
    pub scratch: Scratch,
    pub window: Vec<u8>,
}

/// A window larger than this is given back to the system after use.
const WINDOW_KEPT: usize = 1 << 20;

pub struct Engine {
    pub scanner: Scanner,
    /// By id: bytes of text that the token covers.
    lengths: Vec<u32>,
    /// By id: what the reference trims from the ends of the token's span, when it trims at all.
    trims: Option<Vec<Trim>>,
    /// As many as threads were ever at work at once; each is bounded by the size of its piece cache.
    idle: Mutex<Vec<Workspace>>,
}

impl RefUnwindSafe for Engine {}
impl UnwindSafe for Engine {}

/// What is trimmed from the ends of a span.
#[derive(Clone, Copy)]
enum Trim {
    /// So many characters: the white space of the vocabulary entry.
    Characters(u8, u8),
    /// The white space that the text has there, which an added token swallowed.
    WhiteSpace,
}

/// All that makes an engine, apart from its model.
pub struct Program {
    pub pieces: Pieces,
    pub normalizer: Option<Normalizer>,
    /// Those matched in the raw text, and those matched in the normalized text, already normalized.
    pub raw_tokens: Vec<AddedToken>,
    pub normal_tokens: Vec<AddedToken>,
    /// Whether the post-processor trims white space from spans.
    pub trim_offsets: bool,
}

impl Engine {
    pub fn new(program: Program, model: Bpe) -> Self {
        let added = || program.raw_tokens.iter().chain(&program.normal_tokens);
        let size = added().map(|token| token.id as usize + 1).max().unwrap_or(0).max(model.vocabulary_size());
        let mut lengths: Vec<u32> = (0..size as u32).map(|id| model.token_len(id)).collect();
        let trim = |id| {
            let (left, right) = model.trim(id);
            Trim::Characters(left, right)
        };
        let mut trims: Vec<Trim> = (0..size as u32).map(trim).collect();
        for token in added() {
            let id = token.id as usize;
            if lengths[id] == 0 {
                lengths[id] = token.content.len() as u32;
            }
            trims[id] = Trim::WhiteSpace;
        }
        let trims = program.trim_offsets.then_some(trims);
        let scanner = Scanner {
            raw_tokens: AddedTokens::new(program.raw_tokens),
            normalizer: program.normalizer,
            normal_tokens: AddedTokens::new(program.normal_tokens),
            pieces: program.pieces,
            model,
        };
        Self { scanner, lengths, trims, idle: Mutex::new(Vec::new()) }
    }

    /// Run `work` with buffers that nobody else uses meanwhile.
    pub fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let taken = idle().pop();
        let mut workspace =
            taken.unwrap_or_else(|| Workspace { scratch: self.scanner.new_scratch(), window: Vec::new() });
        let result = work(&mut workspace);
        if workspace.window.capacity() > WINDOW_KEPT {
            workspace.window = Vec::new();
        }
        idle().push(workspace);
        result
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str, interrupted: &mut dyn FnMut() -> bool) -> Result<Vec<u32>, Interrupted> {
        let mut sink = Ids { ids: Vec::with_capacity(text.len() / 4 + 8), watch: Watch::new(interrupted) };
        let window = Window { text: text.as_bytes(), open: false, at_start: true };
        match self.with_workspace(|workspace| self.scanner.scan(window, &mut workspace.scratch, &mut sink)) {
            Outcome::Complete => Ok(sink.ids),
            _ => Err(Interrupted),
        }
    }

    /// The span of token `id`, which covers text[start..end), as the reference gives it: whole characters, and
    /// trimmed if its post-processor trims.
    #[inline(always)]
    pub fn reference_span(&self, text: &[u8], id: u32, start: usize, end: usize) -> (usize, usize) {
        if self.trims.is_none() && utf8::is_boundary(text, start) && utf8::is_boundary(text, end) {
            return (start, end);
        }
        self.widened_span(text, id, start, end)
    }

    #[inline(never)]
    fn widened_span(&self, text: &[u8], id: u32, start: usize, end: usize) -> (usize, usize) {
        let start = utf8::floor(text, start);
        let end = utf8::ceil(text, end);
        match self.trims.as_ref().and_then(|trims| trims.get(id as usize)) {
            None => (start, end),
            Some(&Trim::Characters(left, right)) => trimmed(text, start, end, left.into(), right.into()),
            Some(Trim::WhiteSpace) => {
                let covered = utf8::as_str(&text[start..end]);
                let left = covered.chars().take_while(|c| c.is_whitespace()).count();
                let right = covered.chars().rev().take_while(|c| c.is_whitespace()).count();
                trimmed(text, start, end, left, right)
            }
        }
    }
}

/// text[start..end) without `left` characters at its beginning and `right` at its end, or what is left of it.
fn trimmed(text: &[u8], mut start: usize, mut end: usize, left: usize, right: usize) -> (usize, usize) {
    for _ in 0..left {
        if start < end {
            start += utf8::width(text[start]);
        }
    }
    for _ in 0..right {
        if end > start {
            end = utf8::before(text, end);
        }
    }
    (start, end)
}

impl Lengths for Engine {
    #[inline(always)]
    fn length(&self, id: u32) -> usize {
        self.lengths.get(id as usize).map_or(0, |&length| length as usize)
    }
}

/// Takes the ids alone.
struct Ids<'a> {
    ids: Vec<u32>,
    watch: Watch<'a>,
}

impl Sink for Ids<'_> {
    const RESTARTS: bool = false;
    const SLACK: usize = usize::MAX;

    #[inline(always)]
    fn begin(&mut self, _at: usize, _restartable: bool) -> bool {
        !self.watch.stops()
    }

    #[inline(always)]
    fn ids(&mut self) -> &mut Vec<u32> {
        &mut self.ids
    }

    #[inline(always)]
    fn pushes_until(&self) -> usize {
        usize::MAX
    }

    #[inline(always)]
    fn pushed(&mut self, first: usize, _start: impl Fn(usize) -> usize) {
        self.watch.passed(self.ids.len() - first);
    }

    #[inline(always)]
    fn reaches(&mut self, _end: usize, _reach: usize) {}

    #[inline(always)]
    fn end(&mut self, _end: usize, _reach: usize, _layout: Layout<'_>) {}
}
