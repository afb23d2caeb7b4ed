//! The pieces that a transducer finds, block after block, on their way to the sink.

use super::Run;
use crate::scan::parallel::Parallel;
use crate::scan::reach::NEAR;
use crate::scan::transducer::{Block, BlockPieces, Transducer, BLOCK_LEAST, INSIDE};
use crate::scan::{utf8, Outcome, Sink};

/// How many blocks the transducer reads at most before words are tried again.
const TURNS_MOST: usize = 16;

impl<S: Sink> Run<'_, S> {
    /// The pieces of all levels that the machines find from `at` on, where a scan may restart, up to `hi` at most;
    /// normalization left the text as it was. Gives where they end.
    pub(super) fn blocks(
        &mut self,
        (transducer, parallel): (&Transducer, Option<&Parallel>),
        mut at: usize,
        hi: usize,
    ) -> (usize, Outcome) {
        let Some(mut block) = self.block.take() else { return (at, Outcome::Complete) };
        block.restart();
        let mut outcome = Outcome::Complete;
        // Blocks for the transducer before words are tried again.
        let (mut turns, mut patience) = (0, 1);
        while outcome == Outcome::Complete {
            if let Some(parallel) = parallel.filter(|_| turns == 0) {
                let from = at;
                (at, outcome) = self.all_words(parallel, transducer, at, hi);
                patience = if at - from < BLOCK_LEAST { (2 * patience).min(TURNS_MOST) } else { 1 };
                turns = patience;
            }
            if hi - at < BLOCK_LEAST || outcome != Outcome::Complete {
                break;
            }
            let from = at;
            transducer.read(&mut block, &self.text[at..hi], S::RESTARTS);
            (at, outcome) = self.block(&block, at);
            if block.is_trapped || at == from {
                break;
            }
            turns = turns.saturating_sub(1);
        }
        *self.block = Some(block);
        (at, outcome)
    }

    /// The pieces of a block that begins at `from`.
    fn block(&mut self, block: &Block, from: usize) -> (usize, Outcome) {
        let mut at = from;
        for chain in 0..Block::CHAINS {
            let (pieces, goes_on) = block.pieces(chain);
            if !self.batch(pieces, from + pieces.base, at) {
                return (at, Outcome::Stopped);
            }
            if let Some(&end) = pieces.ends.last() {
                // A scan may restart behind the last piece.
                at = from + pieces.base + usize::from(end);
            }
            if !goes_on {
                break;
            }
        }
        (at, Outcome::Complete)
    }

    /// Some pieces of a block; false if the sink stops the scan before one of them. `base`: what their positions are counted
    /// from. `at`: where the first one begins, and a scan may restart.
    #[inline(never)]
    fn batch(&mut self, pieces: BlockPieces<'_>, base: usize, mut at: usize) -> bool {
        let mut may = true;
        let Some(&last) = pieces.reads.last() else { return true };
        let last = base + usize::from(last);
        let near = self.near_reach(at, last);
        let mut until = 0;
        let mut n = 0;
        loop {
            let apart = at < until && self.push(pieces, base, (&mut n, &mut at), until, near);
            let Some(&end) = pieces.ends.get(n) else { return true };
            let stop = base + usize::from(end & !INSIDE);
            let reach = match S::RESTARTS {
                true => {
                    let read = base + usize::from(pieces.reads[n]);
                    self.raised(read + utf8::width(self.text[read]))
                }
                false => stop,
            };
            let restartable = may && self.may_restart(at);
            let goes_on = match apart {
                true => self.apart_piece((at, stop), reach, restartable),
                false => self.even_piece((at, stop), reach, restartable),
            };
            if !goes_on {
                return false;
            }
            (at, n) = (stop, n + 1);
            may = end & INSIDE == 0;
            let is_calm = || last + utf8::WIDEST < self.calm.until && self.calm.floor <= at;
            until = if may && near > 0 && (!S::RESTARTS || is_calm()) { self.sink.pushes_until() } else { 0 };
        }
    }

    /// Pushes the tokens of pieces from number `n` and position `at` on, up to one that must be handed on by itself. Whether
    /// that is one of several tokens.
    #[inline(always)]
    fn push(
        &mut self,
        pieces: BlockPieces<'_>,
        base: usize,
        (n, at): (&mut usize, &mut usize),
        until: usize,
        near: usize,
    ) -> bool {
        let (first, begin, first_id) = (*n, *at, self.sink.ids().len());
        let mut apart = false;
        while let Some(&end) = pieces.ends.get(*n).filter(|_| *at < until) {
            // An end inside a match is too far from anything.
            if S::RESTARTS && usize::from(pieces.reads[*n].wrapping_sub(end)) > near {
                break;
            }
            let end = base + usize::from(end & !INSIDE);
            let Some(id) = self.scanner.model.whole(self.text, *at, end) else {
                apart = true;
                break;
            };
            self.sink.ids().push(id);
            (*at, *n) = (end, *n + 1);
        }
        self.sink.pushed(first_id, |number| match number {
            0 => begin,
            _ => base + usize::from(pieces.ends[first + number - 1]),
        });
        apart
    }

    /// How far behind the end of a piece the unit that settled it can begin, so that the piece's reach is within what is
    /// alike to the sink, wherever it stands in [from, to) and all is calm; 0 if that is not certain.
    pub(super) fn near_reach(&self, from: usize, to: usize) -> usize {
        if !S::RESTARTS {
            return usize::MAX;
        }
        // As in `raised`.
        let behind = utf8::WIDEST + self.near + 1 + NEAR;
        let is_plain = || self.raw.get(from..to + behind).is_some_and(<[u8]>::is_ascii);
        match self.scanner.normalizer.is_none() || is_plain() {
            true => S::SLACK.saturating_sub(behind),
            false => 0,
        }
    }
}
