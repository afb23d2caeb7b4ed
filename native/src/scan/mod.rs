//! The reference's pipeline as a scanner: added tokens, normalization, split levels, model; piece after piece.
//!
//! Each stage tells how far into the text its decisions reach (rules R0 to R2 and R5 to R7 of docs/exactness.md); a
//! piece is handed on with the reach of all that decided on it and with whether a scan may restart before it.

pub mod added;
pub mod automaton;
pub mod classes;
pub mod normal;
pub mod parallel;
pub mod reach;
mod run;
pub mod section;
mod stay;
#[cfg(test)]
mod tests;
pub mod transducer;
pub mod utf8;

use crate::bpe::{Bpe, PieceCache};
use added::{AddedTokens, Found};
use automaton::Automaton;
use normal::Normalizer;
use parallel::Parallel;
use reach::LongAttempts;
use run::{Run, Stage};
use section::Section;
use transducer::{Block, Transducer};

/// Where the tokens of a piece lie in the raw text.
pub enum Layout<'a> {
    /// One after the other from the piece's start to its end, each as long as its vocabulary entry.
    Tiled,
    /// At these byte spans.
    Spans(&'a [(usize, usize)]),
}

/// Takes the pieces of a text, in order. Positions are bytes of the scanned text.
pub trait Sink {
    /// Whether it wants to know where a scan may restart and how far a piece reaches. If not, it is told anything.
    const RESTARTS: bool;
    /// Up to so far behind a piece's end, all reaches are alike to it.
    const SLACK: usize;
    /// A piece begins at `at`. `restartable`: a scan may restart there. False stops the scan before the piece.
    fn begin(&mut self, at: usize, restartable: bool) -> bool;
    /// Where the piece's ids go.
    fn ids(&mut self) -> &mut Vec<u32>;
    /// A piece that is one token and follows on the one before, in one call.
    #[inline(always)]
    fn token(&mut self, at: usize, end: usize, id: u32, reach: usize, restartable: bool) -> bool {
        if !self.begin(at, restartable) {
            return false;
        }
        self.ids().push(id);
        self.end(end, reach, Layout::Tiled);
        true
    }
    /// Pieces that begin before this position need not begin and end one by one: those of one token each, whose reaches
    /// lie within the slack, and before which a scan may restart. Their ids are pushed, and then `pushed` tells of them.
    fn pushes_until(&self) -> usize;
    /// The tokens from `first` on in `ids` were pushed, and number n of them begins at `start(n)`.
    fn pushed(&mut self, first: usize, start: impl Fn(usize) -> usize);
    /// The last piece, which ended at `end` and whose token was pushed, reaches further than was said.
    fn reaches(&mut self, end: usize, reach: usize);
    /// The piece ends at `end`; all that decided on it lies before `reach` (`FAR`: the end of the text did).
    fn end(&mut self, end: usize, reach: usize, layout: Layout<'_>);
}

/// What ended a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The text did.
    Complete,
    /// The sink did.
    Stopped,
    /// More text is needed to go on.
    Open,
}

/// What the pieces of a text are.
pub enum Pieces {
    /// The matches of split levels, each level within the pieces of the one before; byte-level symbols.
    Split(Levels),
    /// Stretches that no token of the vocabulary can cross (rule R7); characters as symbols.
    Joined(Prepend),
}

/// Split levels, the machine for all of them where they can be made one, and a program that has the same pieces, where
/// one is known.
pub struct Levels {
    automata: Vec<Automaton>,
    transducer: Option<Transducer>,
    parallel: Option<Box<Parallel>>,
}

impl Levels {
    pub fn new(automata: Vec<Automaton>) -> Self {
        let transducer = transducer::compile(&automata);
        let parallel = transducer.as_ref().and_then(parallel::compile).map(Box::new);
        Self { automata, transducer, parallel }
    }
}

/// The mark that is put before a section: a space that stands in no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepend {
    Never,
    /// Only at the start of the text, unless a mark is there.
    First,
    /// Before every section.
    Always,
    /// Before every section that does not begin with a mark.
    AlwaysIfAbsent,
}

/// A text, or a window of one, to be scanned from its first byte.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// Valid UTF-8.
    pub text: &'a [u8],
    /// Whether the text goes on beyond the window.
    pub open: bool,
    /// Whether the window begins where the text does.
    pub at_start: bool,
}

pub struct Scanner {
    pub raw_tokens: AddedTokens,
    pub normalizer: Option<Normalizer>,
    /// Those matched after normalization.
    pub normal_tokens: AddedTokens,
    pub pieces: Pieces,
    pub model: Bpe,
}

/// Buffers of a scan, to be used again.
pub struct Scratch {
    cache: PieceCache,
    section: Section,
    raw_longs: LongAttempts,
    token_longs: LongAttempts,
    level_longs: Vec<LongAttempts>,
    spans: Vec<(usize, usize)>,
    buffer: Vec<u8>,
    /// Taken by whoever reads a block.
    block: Option<Box<Block>>,
    words: Option<Box<parallel::Block>>,
}

impl Scanner {
    pub fn new_scratch(&self) -> Scratch {
        let levels = if let Pieces::Split(levels) = &self.pieces { levels.automata.len() } else { 0 };
        Scratch {
            cache: self.model.new_cache(),
            section: Section::default(),
            raw_longs: LongAttempts::default(),
            token_longs: LongAttempts::default(),
            level_longs: (0..levels).map(|_| LongAttempts::default()).collect(),
            spans: Vec::new(),
            buffer: Vec::new(),
            block: Some(Box::default()),
            words: Some(Box::default()),
        }
    }

    /// Scan a window, handing its pieces to `sink`.
    pub fn scan<S: Sink>(&self, window: Window<'_>, scratch: &mut Scratch, sink: &mut S) -> Outcome {
        scratch.raw_longs.clear();
        let text = window.text;
        let at_end = (!window.open).then_some(reach::FAR);
        let mut at = 0;
        let mut section_start = window.at_start;
        while at < text.len() {
            let found = self.raw_tokens.next(text, at, at_end, &mut scratch.raw_longs);
            let (hi, end) = match found {
                Found::Token(token) => (token.start, Stage::Settled),
                Found::Nothing if window.open => (text.len(), Stage::Open),
                Found::Nothing => (text.len(), Stage::End),
                Found::Open(start) => (start, Stage::Open),
            };
            if hi > at {
                let outcome = self.section(text, (at, hi), end, (section_start, window.at_start), scratch, sink);
                if outcome != Outcome::Complete {
                    return outcome;
                }
            }
            let Found::Token(token) = found else { break };
            if !sink.begin(token.start, true) {
                return Outcome::Stopped;
            }
            sink.ids().push(token.id);
            let reach = scratch.raw_longs.raise(token.reach);
            sink.end(token.end, reach, Layout::Spans(&[(token.start, token.end)]));
            at = token.end;
            section_start = true;
        }
        if window.open {
            Outcome::Open
        } else {
            Outcome::Complete
        }
    }

    /// One section of the text, between added tokens. `starts`: whether the section begins at `lo` (and is not a
    /// window's beginning in mid-section), and whether position 0 is the start of the text.
    fn section<S: Sink>(
        &self,
        raw: &[u8],
        (lo, hi): (usize, usize),
        end: Stage,
        (section_start, text_start): (bool, bool),
        scratch: &mut Scratch,
        sink: &mut S,
    ) -> Outcome {
        let hi = if end == Stage::Open { self.last_safe(raw, lo, hi) } else { hi };
        let Scratch { cache, section, raw_longs, token_longs, level_longs, spans, buffer, block, words } = scratch;
        section.read(self.normalizer.as_ref(), raw, lo, hi);
        token_longs.clear();
        level_longs.iter_mut().for_each(LongAttempts::clear);
        let (text, from, to) = section.text(raw, hi);
        let mut run = Run {
            scanner: self,
            raw,
            section,
            text,
            cache,
            raw_longs,
            token_longs,
            level_longs,
            spans,
            buffer,
            block,
            words,
            sink,
            near: self.near(),
            calm: Default::default(),
        };
        run.section((from, to), end, section_start, text_start && lo == 0)
    }

    /// What the levels but the last, and the added tokens of the second pass, add to a reach.
    fn near(&self) -> usize {
        let upper = if let Pieces::Split(levels) = &self.pieces { levels.automata.len() - 1 } else { 0 };
        reach::NEAR * (upper + usize::from(!self.normal_tokens.is_empty()))
    }

    /// The last position in (lo, hi] before which an open text can be cut for normalization; `lo` if there is none.
    fn last_safe(&self, raw: &[u8], lo: usize, hi: usize) -> usize {
        let Some(normalizer @ Normalizer::Form(..)) = &self.normalizer else { return hi };
        let mut at = hi;
        while at > lo {
            at = utf8::before(raw, at);
            if normalizer.is_safe(raw, at) {
                break;
            }
        }
        at
    }
}
