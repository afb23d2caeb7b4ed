//! One section on its way through the stages after normalization.

mod blocks;
mod words;

use super::added::Found;
use super::automaton::Automaton;
use super::parallel;
use super::reach::{LongAttempts, FAR, NEAR};
use super::section::Section;
use super::transducer::{Block, BLOCK_LEAST};
use super::{utf8, Layout, Outcome, Pieces, Prepend, Scanner, Sink};
use crate::bpe::PieceCache;

/// Where a transducer gives up, so many bytes are left to attempts at matches before it is asked again; twice as many
/// each time that it finds next to nothing.
const BY_ATTEMPTS: usize = 64;
const BY_ATTEMPTS_MOST: usize = 1 << 14;

/// How a stretch ends, as those see it who read its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// At a boundary that an earlier stage decided on.
    Settled,
    /// With the text.
    End,
    /// Out of sight.
    Open,
}

impl Stage {
    /// What has come of a stretch that ends so when all of it was handed on.
    fn outcome(self) -> Outcome {
        match self {
            Self::Open => Outcome::Open,
            Self::Settled | Self::End => Outcome::Complete,
        }
    }
}

/// What the pieces of a stretch inherit from the piece that it is.
#[derive(Clone, Copy)]
struct Parent {
    /// The reach of the match that the stretch is, 0 for a stretch between matches.
    floor: usize,
    /// Whether a scan cannot restart inside, because the stretch is, or lies within, a match.
    inside_match: bool,
    /// Whether a scan may restart at its first byte.
    restartable: bool,
}

pub(super) struct Run<'a, S> {
    pub scanner: &'a Scanner,
    pub raw: &'a [u8],
    pub section: &'a Section,
    /// The normalized text of the section (or the raw text, which is the same then).
    pub text: &'a [u8],
    pub cache: &'a mut PieceCache,
    pub raw_longs: &'a mut LongAttempts,
    pub token_longs: &'a mut LongAttempts,
    pub level_longs: &'a mut Vec<LongAttempts>,
    pub spans: &'a mut Vec<(usize, usize)>,
    pub buffer: &'a mut Vec<u8>,
    pub block: &'a mut Option<Box<Block>>,
    pub words: &'a mut Option<Box<parallel::Block>>,
    pub sink: &'a mut S,
    /// What the stages before normalization add to a reach when none of them reads far ahead.
    pub near: usize,
    pub calm: Calm,
}

/// Where no stage reads far ahead, so that reaches need no look at each of them. Forgotten when a stage records more.
#[derive(Default)]
pub(super) struct Calm {
    /// Holds for reaches before this one.
    until: usize,
    /// What earlier attempts raise a reach to.
    floor: usize,
}

/// `return` whatever is not a completed stretch.
macro_rules! proceed {
    ($outcome:expr) => {
        match $outcome {
            Outcome::Complete => {}
            other => return other,
        }
    };
}

impl<S: Sink> Run<'_, S> {
    /// The section [lo, hi) of the normalized text: added tokens of the second pass, and the stretches between.
    pub fn section(&mut self, (lo, hi): (usize, usize), end: Stage, starts: bool, starts_text: bool) -> Outcome {
        let scanner = self.scanner;
        let text = &self.text[..hi];
        let at_end = match end {
            Stage::Settled => Some(hi),
            Stage::End => Some(FAR),
            Stage::Open => None,
        };
        let mut at = lo;
        while at < hi {
            let found = scanner.normal_tokens.next(text, at, at_end, self.token_longs);
            self.calm = Calm::default();
            let (stop, kind) = match found {
                Found::Token(token) => (token.start, Stage::Settled),
                Found::Nothing => (hi, end),
                Found::Open(start) => (start, Stage::Open),
            };
            if stop > at {
                let first = at == lo;
                proceed!(self.stretch((at, stop), kind, starts || !first, starts_text && first));
            }
            let Found::Token(token) = found else { break };
            let (start, inside) = self.section.raw_of(token.start);
            if !self.sink.begin(start, !inside) {
                return Outcome::Stopped;
            }
            self.sink.ids().push(token.id);
            let reach = self.token_longs.raise(token.reach);
            let reach = self.raw_reach(reach);
            let (from, to) = self.section.span(token.start, token.end);
            let raw_end = self.section.raw_of(token.end).0;
            self.sink.end(raw_end, reach, Layout::Spans(&[(from, to)]));
            at = token.end;
        }
        end.outcome()
    }

    fn stretch(&mut self, (lo, hi): (usize, usize), end: Stage, starts: bool, starts_text: bool) -> Outcome {
        match &self.scanner.pieces {
            Pieces::Split(_) => {
                let parent = Parent { floor: 0, inside_match: false, restartable: true };
                self.split(0, (lo, hi), end, parent)
            }
            Pieces::Joined(prepend) => self.joined(*prepend, (lo, hi), end, starts, starts_text),
        }
    }

    /// Split [lo, hi) at level `k` and below.
    fn split(&mut self, k: usize, (lo, hi): (usize, usize), end: Stage, parent: Parent) -> Outcome {
        let Pieces::Split(levels) = &self.scanner.pieces else { unreachable!("only split pieces have levels") };
        let level = &levels.automata[k];
        let last = k + 1 == levels.automata.len();
        let text = self.text;
        let even = !self.section.changed() && self.scanner.model.tiles();
        let machine = levels.transducer.as_ref().filter(|_| even && k == 0);
        let mut at = lo;
        // Where the transducer is asked again, and how much is left to attempts before that.
        let (mut until, mut patience) = (lo, BY_ATTEMPTS);
        while at < hi {
            let mut outcome;
            match machine {
                Some(transducer) if hi - at >= BLOCK_LEAST => {
                    if at >= until {
                        let from = at;
                        (at, outcome) = self.blocks((transducer, levels.parallel.as_deref()), at, hi);
                        proceed!(outcome);
                        let was_worth_it = at - from >= BLOCK_LEAST;
                        patience = if was_worth_it { BY_ATTEMPTS } else { (2 * patience).min(BY_ATTEMPTS_MOST) };
                        until = at + patience;
                    }
                }
                _ => until = hi,
            }
            if even && last {
                (at, outcome) = self.matches(level, (lo, at, hi), until, parent);
                proceed!(outcome);
                if at == hi {
                    break;
                }
            }
            let gap_start = at;
            // Position after the last unit that decided on the gap.
            let mut gap_reach = 0;
            let mut found = None;
            let mut open = false;
            loop {
                at = level.next_start(text, at, hi);
                gap_reach = gap_reach.max(at);
                if at == hi {
                    break;
                }
                let attempt = level.attempt(&text[..hi], at);
                if attempt.saw_end && end == Stage::Open {
                    open = true;
                    break;
                }
                let reach = if attempt.saw_end && end == Stage::End { FAR } else { attempt.reach };
                if !last && self.level_longs[k].record(at, reach) {
                    self.calm = Calm::default();
                }
                gap_reach = gap_reach.max(reach);
                if let Some(stop) = attempt.end {
                    found = Some((stop, reach));
                    break;
                }
                at += level.unit_width(text[at]);
            }
            let restartable = |start: usize| if start == lo { parent.restartable } else { !parent.inside_match };
            if at > gap_start {
                let stage = match found {
                    Some(_) => Stage::Settled,
                    None if open => Stage::Open,
                    None => end,
                };
                let may = restartable(gap_start);
                if !last {
                    let child = Parent { restartable: may, ..parent };
                    proceed!(self.split(k + 1, (gap_start, at), stage, child));
                } else if stage == Stage::Open {
                    return Outcome::Open;
                } else {
                    let reach = if stage == Stage::End { FAR } else { gap_reach };
                    proceed!(self.piece((gap_start, at), reach, parent.floor, may, level.keeps_gaps));
                }
            }
            if open {
                return Outcome::Open;
            }
            let Some((stop, reach)) = found else { break };
            let may = restartable(at);
            if last {
                proceed!(self.piece((at, stop), reach, parent.floor, may, true));
            } else {
                let child = Parent { floor: parent.floor.max(reach), inside_match: true, restartable: may };
                proceed!(self.split(k + 1, (at, stop), Stage::Settled, child));
            }
            at = stop;
        }
        end.outcome()
    }

    /// The matches of the last level that follow one another from `at` on, up to `until` or one that is not as simple as
    /// most: [lo, hi) is the stretch, which normalization left as it was. Gives where they end.
    #[inline(never)]
    fn matches(
        &mut self,
        level: &Automaton,
        (lo, mut at, hi): (usize, usize, usize),
        until: usize,
        parent: Parent,
    ) -> (usize, Outcome) {
        let text = &self.text[..hi];
        let mut may = if at == lo { parent.restartable } else { !parent.inside_match };
        while at < hi.min(until) {
            let attempt = level.attempt(text, at);
            let (Some(end), false) = (attempt.end, attempt.saw_end) else { break };
            let reach = self.raised(attempt.reach.max(parent.floor));
            let restartable = may && self.may_restart(at);
            if !self.even_piece((at, end), reach, restartable) {
                return (at, Outcome::Stopped);
            }
            at = end;
            may = !parent.inside_match;
        }
        (at, Outcome::Complete)
    }

    /// Hand on the piece [start, end) of the normalized text. `reach`: what its own level read. `keep`: whether the
    /// model sees it at all.
    #[inline(always)]
    fn piece(
        &mut self,
        (start, end): (usize, usize),
        reach: usize,
        floor: usize,
        restartable: bool,
        keep: bool,
    ) -> Outcome {
        let reach = self.raised(reach.max(floor));
        if self.section.changed() || !self.scanner.model.tiles() || !keep {
            return self.uneven_piece((start, end), reach, restartable, keep);
        }
        let restartable = restartable && self.may_restart(start);
        match self.even_piece((start, end), reach, restartable) {
            true => Outcome::Complete,
            false => Outcome::Stopped,
        }
    }

    /// A piece that its tokens tile; false if the sink stops the scan before it.
    #[inline(always)]
    fn even_piece(&mut self, (start, end): (usize, usize), reach: usize, restartable: bool) -> bool {
        let model = &self.scanner.model;
        if let Some(id) = model.whole(self.text, start, end) {
            return self.sink.token(start, end, id, reach, restartable);
        }
        self.apart_piece((start, end), reach, restartable)
    }

    /// The same of a piece that is not one token.
    #[inline(always)]
    fn apart_piece(&mut self, (start, end): (usize, usize), reach: usize, restartable: bool) -> bool {
        let model = &self.scanner.model;
        if !self.sink.begin(start, restartable) {
            return false;
        }
        model.encode_apart(self.cache, self.text, (start, end), self.sink.ids());
        self.sink.end(end, reach, Layout::Tiled);
        true
    }

    /// A piece whose tokens may not tile it.
    #[cold]
    fn uneven_piece(&mut self, (start, end): (usize, usize), reach: usize, restartable: bool, keep: bool) -> Outcome {
        let (raw_start, inside) = self.section.raw_of(start);
        let may = restartable && !inside && self.may_restart(raw_start);
        if !self.sink.begin(raw_start, may) {
            return Outcome::Stopped;
        }
        let ids = self.sink.ids();
        let first = ids.len();
        if keep {
            self.scanner.model.encode(self.cache, &self.text[start..end], ids);
        }
        self.spans.clear();
        let mut at = start;
        for &id in &ids[first..] {
            let next = at + self.scanner.model.token_len(id) as usize;
            self.spans.push(self.section.span(at, next));
            at = next;
        }
        let raw_end = self.section.raw_of(end).0;
        self.sink.end(raw_end, reach, Layout::Spans(self.spans));
        Outcome::Complete
    }

    /// Whether raw position `at`, a boundary of all levels, is a character boundary and a safe cut for normalization.
    #[inline(always)]
    fn may_restart(&self, at: usize) -> bool {
        if !S::RESTARTS || self.raw.get(at).is_none_or(|&byte| byte < 0x80) {
            return true;
        }
        utf8::is_boundary(self.raw, at) && self.scanner.normalizer.as_ref().is_none_or(|n| n.is_safe(self.raw, at))
    }

    /// The reach of a piece through all stages before its own (rule R0).
    #[inline(always)]
    fn raised(&mut self, reach: usize) -> usize {
        if !S::RESTARTS {
            return reach;
        }
        // Mostly each stage adds `NEAR`, and normalization a safe character of one byte.
        let near = reach.wrapping_add(self.near);
        if reach < self.calm.until && self.raw.get(near).is_some_and(|&byte| byte < 0x80) {
            return (near + 1 + NEAR).max(self.calm.floor);
        }
        self.raise(reach)
    }

    #[inline(never)]
    fn raise(&mut self, reach: usize) -> usize {
        let upper = self.level_longs.len().saturating_sub(1);
        let mut raised = reach;
        let mut next = FAR;
        for longs in self.level_longs[..upper].iter_mut().rev() {
            raised = longs.raise(raised);
            next = next.min(longs.next_start());
        }
        if !self.scanner.normal_tokens.is_empty() {
            raised = self.token_longs.raise(raised);
            next = next.min(self.token_longs.next_start());
        }
        raised = self.raw_reach(raised);
        next = next.min(self.raw_longs.next_start());
        let until = if self.section.changed() { 0 } else { next.saturating_sub(self.near + 1 + NEAR) };
        self.calm = Calm { until, floor: raised };
        raised
    }

    fn raw_reach(&mut self, reach: usize) -> usize {
        let raw = match &self.scanner.normalizer {
            None => reach,
            Some(normalizer) => self.section.raw_reach(normalizer, self.raw, reach),
        };
        self.raw_longs.raise(raw)
    }

    /// Cut [lo, hi) wherever no token of the vocabulary can cross.
    fn joined(
        &mut self,
        prepend: Prepend,
        (lo, hi): (usize, usize),
        end: Stage,
        starts: bool,
        starts_text: bool,
    ) -> Outcome {
        let text = self.text;
        let joins = self.scanner.model.joins();
        let absent = text[lo] != b' ';
        let mut marked = match prepend {
            Prepend::Never => false,
            Prepend::First => starts_text && absent,
            Prepend::Always => starts,
            Prepend::AlwaysIfAbsent => starts && absent,
        };
        // Behind an added token the mark depends on the token, which a scan that restarts here would not see.
        let every_section = matches!(prepend, Prepend::Always | Prepend::AlwaysIfAbsent);
        let mut restartable = starts_text || !(starts && every_section);
        let mut start = lo;
        let (first, width) = utf8::decode(text, lo);
        let (mut previous, mut at) = if marked { (u32::from(b' '), lo) } else { (first, lo + width) };
        while at < hi {
            let (point, width) = utf8::decode(text, at);
            if !joins.can_join(previous, point) {
                proceed!(self.joined_piece((start, at), at + width, restartable, marked));
                // The mark alone takes no text, so the next piece begins where it does.
                restartable = at > lo;
                marked = false;
                start = at;
            }
            previous = point;
            at += width;
        }
        match end {
            Stage::Open => Outcome::Open,
            Stage::End => self.joined_piece((start, hi), FAR, restartable, marked),
            Stage::Settled => self.joined_piece((start, hi), hi, restartable, marked),
        }
    }

    fn joined_piece(&mut self, (start, end): (usize, usize), reach: usize, restartable: bool, marked: bool) -> Outcome {
        if !marked {
            return self.piece((start, end), reach, 0, restartable, true);
        }
        let reach = self.raised(reach);
        let raw_start = self.section.raw_of(start).0;
        if !self.sink.begin(raw_start, restartable) {
            return Outcome::Stopped;
        }
        self.buffer.clear();
        self.buffer.push(b' ');
        self.buffer.extend_from_slice(&self.text[start..end]);
        let ids = self.sink.ids();
        let before = ids.len();
        self.scanner.model.encode(self.cache, self.buffer, ids);
        self.spans.clear();
        let mut at = 0;
        for &id in &ids[before..] {
            let next = at + self.scanner.model.token_len(id) as usize;
            // The mark is inserted before the first character and has that one's place.
            let from = start + at.max(1) - 1;
            let to = if next == 1 { start + utf8::width(self.text[start]) } else { start + next - 1 };
            self.spans.push(self.section.span(from, to));
            at = next;
        }
        let raw_end = self.section.raw_of(end).0;
        self.sink.end(raw_end, reach, Layout::Spans(self.spans));
        Outcome::Complete
    }
}
