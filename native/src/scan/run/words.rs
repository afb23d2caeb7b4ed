//! The pieces that a program on words finds, on their way to the sink.

use super::Run;
use crate::scan::parallel::{Parallel, SETTLES};
use crate::scan::transducer::Transducer;
use crate::scan::{utf8, Outcome, Sink};

/// Fewer bytes are not worth a block.
const LEAST: usize = 32;
/// Pieces of which it is asked together whether their reaches matter.
const GROUP: usize = 64;
/// How far a block was handed on.
struct Place {
    /// Where the next piece begins.
    at: usize,
    /// Whether the sink knows how far the piece before reaches.
    is_told: bool,
}

/// Up to so many bytes a piece is too short to hold all the white space that the piece before was settled behind, if that is
/// much.
const SHORT: usize = crate::bpe::SHORT;

impl<S: Sink> Run<'_, S> {
    /// The pieces from `at` on, where a scan may restart, up to `hi` at most, or to what the program does not understand.
    /// Gives where they end.
    pub(super) fn all_words(
        &mut self,
        parallel: &Parallel,
        transducer: &Transducer,
        mut at: usize,
        hi: usize,
    ) -> (usize, Outcome) {
        let Some(mut block) = self.words.take() else { return (at, Outcome::Complete) };
        block.restart();
        let mut outcome = Outcome::Complete;
        while hi - at >= LEAST && outcome == Outcome::Complete {
            let base = at;
            let mut place = Place { at, is_told: true };
            parallel.read(transducer, &mut block, &self.text[at..hi]);
            let program = (parallel, transducer, hi);
            for ends in block.ends().chunks(GROUP) {
                if !self.group(program, ends, base, &mut place) {
                    outcome = Outcome::Stopped;
                    break;
                }
            }
            at = place.at;
            if at == base || block.is_stopped {
                break;
            }
        }
        *self.words = Some(block);
        (at, outcome)
    }

    /// Some pieces of a block that begins at `base`, from `at` on; false if the sink stops the scan before one of them.
    #[inline(never)]
    fn group(
        &mut self,
        (parallel, transducer, hi): (&Parallel, &Transducer, usize),
        ends: &[u16],
        base: usize,
        place: &mut Place,
    ) -> bool {
        let Some(&last) = ends.last() else { return true };
        let furthest = base + usize::from(last) + SHORT + utf8::WIDEST * (SETTLES + 2);
        let settles_near = self.settles_near(place.at, base + usize::from(last));
        let mut until = 0;
        let mut n = 0;
        loop {
            let is_apart = place.at < until && self.push_group(ends, base, (&mut n, place), until);
            let Some(&end) = ends.get(n) else { return true };
            let (start, end) = (place.at, base + usize::from(end));
            if S::RESTARTS && end - start > SHORT && !place.is_told {
                let reach = self.raised(parallel.reach(transducer, &self.text[..hi], start));
                self.sink.reaches(start, reach);
            }
            let reach = if S::RESTARTS { self.raised(parallel.reach(transducer, &self.text[..hi], end)) } else { end };
            let restartable = self.may_restart(start);
            let goes_on = match is_apart {
                true => self.apart_piece((start, end), reach, restartable),
                false => self.even_piece((start, end), reach, restartable),
            };
            if !goes_on {
                return false;
            }
            *place = Place { at: end, is_told: true };
            n += 1;
            let is_calm = || furthest < self.calm.until && self.calm.floor <= end;
            until = if settles_near && (!S::RESTARTS || is_calm()) { self.sink.pushes_until() } else { 0 };
        }
    }

    /// Pushes the tokens of pieces from number `n` and position `at` on, up to one that must be handed on by itself. Whether
    /// that is known to be one of several tokens.
    #[inline(always)]
    fn push_group(&mut self, ends: &[u16], base: usize, (n, place): (&mut usize, &mut Place), until: usize) -> bool {
        let (first, begin) = (*n, place.at);
        let model = &self.scanner.model;
        let ids = self.sink.ids();
        let first_id = ids.len();
        let text = &self.text[base..];
        let mut at = begin - base;
        // Those that begin before `until`.
        let pushable = match ends {
            [.., last] if base + usize::from(*last) <= until => ends.len(),
            _ => ends.partition_point(|&end| base + usize::from(end) < until) + 1,
        };
        let ends = &ends[..pushable.min(ends.len())];
        let is_apart = loop {
            let (count, is_apart) = model.append_run(text, at, &ends[*n..], ids);
            *n += count;
            at = n.checked_sub(1).map_or(at, |last| usize::from(ends[last]));
            let Some(&end) = ends.get(*n).filter(|_| !S::RESTARTS) else { break is_apart };
            let end = usize::from(end);
            match is_apart {
                true => model.encode_apart(self.cache, text, (at, end), ids),
                false => model.encode_in(self.cache, text, (at, end), ids),
            }
            at = end;
            *n += 1;
        };
        if *n > first {
            *place = Place { at: base + at, is_told: false };
        }
        self.sink.pushed(first_id, |number| match number {
            0 => begin,
            _ => base + usize::from(ends[first + number - 1]),
        });
        is_apart
    }

    /// Whether what decides on each piece in [from, to) is within what is alike to the sink, if all is calm.
    fn settles_near(&self, from: usize, to: usize) -> bool {
        let wanted = |unit: usize| SHORT + unit * (SETTLES + 1);
        let near = self.near_reach(from, to);
        near >= wanted(utf8::WIDEST)
            || near >= wanted(1) && self.text[from..].get(..to - from + wanted(1)).is_some_and(<[u8]>::is_ascii)
    }
}
