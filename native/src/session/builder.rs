//! Makes chunks of the pieces of a scan, and stops the scan where the old pieces are found again.

use super::chunk::{Chunk, Exception, Lengths};
use super::cursor::{Cursor, Place};
use super::{SLACK, SPANNED_TARGET, TARGET};
use crate::interrupt::Watch;
use crate::scan::reach::FAR;
use crate::scan::{Layout, Sink};

/// Where new text may run into old pieces (rule R4 of docs/exactness.md).
pub struct Resync<'a> {
    pub cursor: Cursor<'a>,
    /// Bytes of the window up to the end of the edit: a boundary must lie strictly behind it.
    pub after: usize,
    /// Old position = window position + `forward` - `back`.
    pub forward: usize,
    pub back: usize,
}

pub struct Builder<'a, L> {
    text: &'a [u8],
    lengths: &'a L,
    resync: Option<Resync<'a>>,
    watch: Watch<'a>,
    pub done: Vec<Chunk>,
    current: Chunk,
    /// Window position at which `current` begins.
    base: usize,
    /// Bytes of text at which `current` is closed.
    target: usize,
    piece: usize,
    restartable: bool,
    first_id: usize,
    /// Where the first piece ends that depends on the end of the text; FAR if none does.
    pub far_from: usize,
    /// The most that a piece depends on behind its end.
    pub spill: usize,
    /// Where the scan met the old pieces: window position, and the old place.
    pub met: Option<(usize, Place)>,
    pub was_interrupted: bool,
}

impl<'a, L: Lengths> Builder<'a, L> {
    pub fn new(
        text: &'a [u8],
        lengths: &'a L,
        resync: Option<Resync<'a>>,
        interrupted: &'a mut dyn FnMut() -> bool,
    ) -> Self {
        Self {
            text,
            lengths,
            resync,
            watch: Watch::new(interrupted),
            done: Vec::new(),
            current: Chunk::with_room(text.len().min(TARGET)),
            base: 0,
            target: TARGET,
            piece: 0,
            restartable: false,
            first_id: 0,
            far_from: FAR,
            spill: 0,
            met: None,
            was_interrupted: false,
        }
    }

    /// Close the last chunk: the pieces end at window position `end`.
    pub fn finish(mut self, end: usize) -> Built {
        self.close(end);
        Built { chunks: self.done, far_from: self.far_from, spill: self.spill, end, met: self.met.map(|met| met.1) }
    }

    fn close(&mut self, end: usize) {
        if end > self.base {
            self.current.text = self.text[self.base..end].to_vec();
            let room = (self.text.len() - end).min(TARGET);
            self.done.push(std::mem::replace(&mut self.current, Chunk::with_room(room)));
        }
        self.base = end;
        self.target = TARGET;
    }

    fn meets(&mut self, at: usize) -> bool {
        let Some(resync) = &mut self.resync else { return false };
        if at <= resync.after {
            return false;
        }
        let place = resync.cursor.restart_at(at + resync.forward - resync.back);
        self.met = place.map(|place| (at, place));
        place.is_some()
    }
}

/// The chunks of a finished scan.
pub struct Built {
    pub chunks: Vec<Chunk>,
    pub far_from: usize,
    pub spill: usize,
    /// Window position up to which they go.
    pub end: usize,
    pub met: Option<Place>,
}

impl<L: Lengths> Sink for Builder<'_, L> {
    const RESTARTS: bool = true;
    const SLACK: usize = SLACK;

    #[inline(always)]
    fn begin(&mut self, at: usize, restartable: bool) -> bool {
        if !self.goes_on(at, restartable) {
            return false;
        }
        self.piece = at;
        self.restartable = restartable;
        self.first_id = self.current.ids.len();
        true
    }

    #[inline(always)]
    fn token(&mut self, at: usize, end: usize, id: u32, reach: usize, restartable: bool) -> bool {
        if !self.goes_on(at, restartable) {
            return false;
        }
        self.current.push(id, (at - self.base, end - self.base), restartable);
        if reach > end + SLACK {
            self.note(end, reach);
        }
        true
    }

    #[inline(always)]
    fn ids(&mut self) -> &mut Vec<u32> {
        &mut self.current.ids
    }

    #[inline(always)]
    fn pushes_until(&self) -> usize {
        let full = self.base + self.target;
        self.resync.as_ref().map_or(full, |resync| full.min(resync.after + 1))
    }

    #[inline(always)]
    fn pushed(&mut self, first: usize, start: impl Fn(usize) -> usize) {
        self.watch.passed(self.current.ids.len() - first);
        let base = self.base;
        self.current.index_pushed(first, |n| start(n) - base);
    }

    #[inline(always)]
    fn reaches(&mut self, end: usize, reach: usize) {
        if reach > end + SLACK {
            self.note(end, reach);
        }
    }

    #[inline(always)]
    fn end(&mut self, end: usize, reach: usize, layout: Layout<'_>) {
        let start = self.piece - self.base;
        match layout {
            Layout::Spans(spans) if !self.tiles(spans, end) => {
                let base = self.base;
                let moved = spans.iter().map(|&(from, to)| ((from - base) as u32, (to - base) as u32));
                self.current.add_spans(moved, self.lengths);
                self.target = SPANNED_TARGET;
            }
            _ => self.current.index_tiled(self.first_id, start, self.lengths),
        }
        let count = self.current.ids.len() - self.first_id;
        if count > 0 {
            self.current.restarts.push(self.restartable);
            self.current.restarts.push_zeros(count - 1);
        }
        if reach > end + SLACK {
            self.note(end, reach);
        }
    }
}

impl<L: Lengths> Builder<'_, L> {
    /// Whether the scan goes on with a piece at `at`.
    #[inline(always)]
    fn goes_on(&mut self, at: usize, restartable: bool) -> bool {
        if self.watch.stops() {
            self.was_interrupted = true;
            return false;
        }
        if restartable {
            if self.resync.is_some() && self.meets(at) {
                return false;
            }
            if at - self.base >= self.target {
                self.close(at);
            }
        }
        true
    }

    /// Whether the piece's new tokens, at `spans`, tile it.
    fn tiles(&self, spans: &[(usize, usize)], end: usize) -> bool {
        let mut at = self.piece;
        let ids = &self.current.ids[self.first_id..];
        let follows = ids.iter().zip(spans).all(|(&id, &(from, to))| {
            let fits = from == at && to == at + self.lengths.length(id);
            at = to;
            fits
        });
        follows && at == end
    }

    #[cold]
    fn note(&mut self, end: usize, reach: usize) {
        if reach == FAR {
            self.far_from = self.far_from.min(end);
        } else {
            let base = self.base;
            self.spill = self.spill.max(reach - end);
            self.current.exceptions.push(Exception { end: (end - base) as u32, reach: (reach - base) as u32 });
        }
    }
}
