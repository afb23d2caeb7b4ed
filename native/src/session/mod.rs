//! A session: one text and its exact tokens, kept in step under edits at a cost that follows the edit.

pub mod bits;
pub mod builder;
pub mod chunk;
pub mod cursor;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use crate::engine::{Engine, Workspace};
use crate::interrupt::Interrupted;
use crate::scan::reach::FAR;
use crate::scan::{utf8, Outcome, Window};
use bits::Bits;
use builder::{Builder, Built, Resync};
use chunk::Chunk;
use cursor::{Cursor, Place};

/// Bytes of text at which a chunk is closed at the next place where a scan may restart. (Tests with small chunks
/// reach every seam with short texts.)
pub const TARGET: usize = if cfg!(feature = "small-chunks") { 48 } else { 16 * 1024 };
/// The same for a chunk whose tokens have explicit spans, each of which takes as much memory as two ids.
pub const SPANNED_TARGET: usize = if cfg!(feature = "small-chunks") { 16 } else { 1024 };
/// A piece that depends on no more than this many bytes behind its end needs no exception. More than what all
/// stages together add to a reach without a record (`reach::NEAR`).
pub const SLACK: usize = 64;
/// Bytes right of an edit that are looked at first; more when the old pieces are not met in them.
const AHEAD: usize = if cfg!(feature = "small-chunks") { 4 } else { 256 };

#[derive(Clone)]
pub struct Entry {
    pub chunk: Arc<Chunk>,
    /// Bytes of text and tokens before this chunk.
    pub byte: usize,
    pub token: usize,
}

#[derive(Clone)]
pub struct Session {
    entries: Vec<Entry>,
    bytes: usize,
    tokens: usize,
    /// No piece that depends on the end of the text ends before this byte.
    far_from: usize,
    /// No other piece depends on more than this many bytes behind its end.
    spill: usize,
}

/// What an edit changed: new tokens = old[..keep_left] + ids + old[len - keep_right..].
pub struct Change {
    pub keep_left: usize,
    pub ids: Vec<u32>,
    pub keep_right: usize,
    /// The first token that differs; the number of tokens when none does.
    pub first_changed: usize,
    /// Bytes that were scanned left of the edit, and right of it; and all characters that were.
    pub back: usize,
    pub forward: usize,
    pub scanned_chars: usize,
}

impl Session {
    /// The session of a whole text.
    pub fn new(engine: &Engine, text: &str, interrupted: &mut dyn FnMut() -> bool) -> Result<Self, Interrupted> {
        let mut session = Self { entries: Vec::new(), bytes: 0, tokens: 0, far_from: FAR, spill: 0 };
        let mut builder = Builder::new(text.as_bytes(), engine, None, interrupted);
        let window = Window { text: text.as_bytes(), open: false, at_start: true };
        engine.with_workspace(|workspace| engine.scanner.scan(window, &mut workspace.scratch, &mut builder));
        if builder.was_interrupted {
            return Err(Interrupted);
        }
        let built = builder.finish(text.len());
        session.far_from = built.far_from;
        session.spill = built.spill;
        session.insert(0, built.chunks);
        session.entries.shrink_to_fit();
        Ok(session)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Where a scan may restart: a bit for each token, that of the first one lowest; zeros behind the last.
    pub fn restarts(&self) -> Vec<u8> {
        let mut all = Bits::with_room(self.tokens);
        for entry in &self.entries {
            all.extend(&entry.chunk.restarts, 0);
        }
        all.to_bytes()
    }

    /// The ids of tokens [start, end).
    pub fn ids(&self, start: usize, end: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(end.saturating_sub(start));
        self.for_ids(start, end, |stretch| ids.extend_from_slice(stretch));
        ids
    }

    /// Hand out the ids of tokens [start, end), stretch by stretch.
    pub fn for_ids(&self, start: usize, end: usize, mut each: impl FnMut(&[u32])) {
        let first = self.entry_of_token(start);
        for entry in self.entries.iter().skip(first).take_while(|entry| entry.token < end) {
            let chunk = &entry.chunk.ids;
            let to = chunk.len().min(end - entry.token);
            each(&chunk[start.saturating_sub(entry.token).min(to)..to]);
        }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Memory held, growth slack included; what is shared with other sessions counts by its share.
    pub fn heap_bytes(&self) -> usize {
        let chunks: usize =
            self.entries.iter().map(|entry| entry.chunk.heap_bytes() / Arc::strong_count(&entry.chunk)).sum();
        std::mem::size_of::<Self>() + self.entries.capacity() * std::mem::size_of::<Entry>() + chunks
    }

    /// The chunk that holds `byte`; the last one for the end of the text.
    pub fn entry_of(&self, byte: usize) -> usize {
        self.entries.partition_point(|entry| entry.byte <= byte).saturating_sub(1)
    }

    /// The chunk that holds token `token`; the last one for those behind the last.
    pub fn entry_of_token(&self, token: usize) -> usize {
        self.entries.partition_point(|entry| entry.token <= token).saturating_sub(1)
    }

    /// Put `new` in place of bytes [start, end), which are character boundaries of the text. `None` when that changes
    /// nothing.
    pub fn splice(
        &mut self,
        engine: &Engine,
        (start, end): (usize, usize),
        new: &str,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Change>, Interrupted> {
        if self.holds(start, end, new.as_bytes()) {
            return Ok(None);
        }
        let from = self.restart_before(start, engine);
        let built = engine.with_workspace(|work| self.rescan(engine, from, (start, end), new, work, interrupted))?;
        Ok(Some(self.apply(engine, from, (start, end), new.len(), built)))
    }

    /// The last place from which a scan gives the pieces of every text that agrees with this one before `edit`: all
    /// pieces left of it depend on nothing at or behind `edit` (rule R3).
    fn restart_before(&self, edit: usize, engine: &Engine) -> Place {
        let start = Place { entry: 0, token: 0, byte: 0 };
        let Some(mut limit) = edit.checked_sub(SLACK) else { return start };
        limit = limit.min(self.far_from.saturating_sub(1));
        if self.entries.is_empty() {
            return start;
        }
        let mut at = self.entry_of(limit);
        for entry in self.entries[..=at].iter().rev() {
            if entry.byte + entry.chunk.text.len() + self.spill <= edit {
                break;
            }
            for exception in entry.chunk.exceptions.iter().rev() {
                let end = entry.byte + exception.end as usize;
                if end <= limit && entry.byte + exception.reach as usize > edit {
                    // A mark alone takes no text: nothing lies left of its piece at the start.
                    let Some(before) = end.checked_sub(1) else { return start };
                    limit = before;
                }
            }
        }
        at = at.min(self.entry_of(limit));
        loop {
            let entry = &self.entries[at];
            if limit >= entry.byte {
                if let Some((token, byte)) = entry.chunk.last_restart(limit - entry.byte, engine) {
                    return Place { entry: at, token, byte: entry.byte + byte };
                }
            }
            let Some(before) = at.checked_sub(1) else { return start };
            at = before;
        }
    }

    /// Scan the edited text from `from` on until the old pieces are met or the text ends.
    fn rescan(
        &self,
        engine: &Engine,
        from: Place,
        (start, end): (usize, usize),
        new: &str,
        Workspace { scratch, window }: &mut Workspace,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Built, Interrupted> {
        let mut ahead = AHEAD;
        loop {
            let stop = self.char_boundary(end.saturating_add(ahead).min(self.bytes));
            let open = stop < self.bytes;
            window.clear();
            self.copy_text(from.byte, start, window);
            window.extend_from_slice(new.as_bytes());
            self.copy_text(end, stop, window);
            let after = start - from.byte + new.len();
            let resync = (end < self.bytes).then(|| Resync {
                cursor: Cursor::new(self, engine, end),
                after,
                forward: end,
                back: after,
            });
            let mut builder = Builder::new(window, engine, resync, interrupted);
            let view = Window { text: window, open, at_start: from.byte == 0 };
            let outcome = engine.scanner.scan(view, scratch, &mut builder);
            if builder.was_interrupted {
                return Err(Interrupted);
            }
            match outcome {
                Outcome::Complete => return Ok(builder.finish(window.len())),
                Outcome::Stopped => {
                    let at = builder.met.expect("a scan stops where it meets the old pieces").0;
                    return Ok(builder.finish(at));
                }
                Outcome::Open => ahead = ahead.saturating_mul(4),
            }
        }
    }

    /// Take over the result of a scan from `from` on.
    fn apply(
        &mut self,
        engine: &Engine,
        from: Place,
        (start, end): (usize, usize),
        new_bytes: usize,
        built: Built,
    ) -> Change {
        let keep_left = self.token_of(from);
        let met = built.met.unwrap_or(Place { entry: self.entries.len(), token: 0, byte: self.bytes });
        let met_token = if built.met.is_some() { self.token_of(met) } else { self.tokens };
        let keep_right = self.tokens - met_token;
        let mut ids = built.chunks.iter().map(|chunk| chunk.ids.as_slice()).collect::<Vec<_>>().concat();
        let scanned_chars = built.chunks.iter().map(|chunk| utf8::count(&chunk.text)).sum();
        let first_changed = self.first_changed(keep_left, &ids, met_token);
        let same = match first_changed {
            Some(first) if self.is_tiled(from, met, &built) => ids.len().min(first.min(met_token) - keep_left),
            _ => 0,
        };
        ids.drain(..same);
        let old_bytes = self.bytes;
        let end_byte = from.byte + built.end;
        self.far_from = self.far_after(from.byte, &built, met, end_byte);
        self.spill = self.spill.max(built.spill);
        self.replace(engine, from, met, built);
        debug_assert_eq!(self.bytes, old_bytes + new_bytes - (end - start));
        Change {
            keep_left: keep_left + same,
            ids,
            keep_right,
            first_changed: first_changed.unwrap_or(self.tokens),
            back: start - from.byte,
            forward: met.byte - end,
            scanned_chars,
        }
    }

    /// Whether old and new tokens between two places tile the text: then those that are the same from the left on have
    /// the same spans too.
    fn is_tiled(&self, from: Place, met: Place, built: &Built) -> bool {
        let until = self.entries.len().min(met.entry + 1);
        let old = self.entries[from.entry.min(until)..until].iter().map(|entry| &*entry.chunk);
        old.chain(&built.chunks).all(|chunk| !chunk.has_spans())
    }

    /// `far_from` after the edit.
    fn far_after(&self, from: usize, built: &Built, met: Place, end_byte: usize) -> usize {
        let fresh = if built.far_from == FAR { FAR } else { from + built.far_from };
        if built.met.is_none() {
            return fresh;
        }
        // Pieces right of the meeting place keep their reach; the first of them may be any of them.
        let kept = match self.far_from {
            FAR => FAR,
            far if far > met.byte => far - met.byte + end_byte,
            _ => end_byte + 1,
        };
        fresh.min(kept)
    }

    /// The first token at which old[..left] + ids + old[right..] differs from the old tokens.
    fn first_changed(&self, left: usize, ids: &[u32], right: usize) -> Option<usize> {
        let mut old = self.ids_from(left);
        for (i, &id) in ids.iter().enumerate() {
            if old.next() != Some(id) {
                return Some(left + i);
            }
        }
        if left + ids.len() == right {
            return None;
        }
        let differs = self.ids_from(right).position(|id| old.next() != Some(id));
        differs.map(|further| left + ids.len() + further)
    }

    /// The ids from token `token` on.
    pub fn ids_from(&self, token: usize) -> impl Iterator<Item = u32> + '_ {
        let entry = self.entry_of_token(token);
        let skip = self.entries.get(entry).map_or(0, |entry| token - entry.token);
        self.entries[entry.min(self.entries.len())..]
            .iter()
            .flat_map(|entry| entry.chunk.ids.iter().copied())
            .skip(skip)
    }

    fn token_of(&self, place: Place) -> usize {
        self.entries.get(place.entry).map_or(self.tokens, |entry| entry.token + place.token)
    }

    /// Put the built chunks in place of everything between two places.
    fn replace(&mut self, engine: &Engine, from: Place, met: Place, built: Built) {
        let mut fresh = built.chunks;
        let mut until = met.entry;
        // What remains of the chunk that the meeting place lies in.
        let tail = self.entries.get(met.entry).and_then(|entry| {
            let at = met.byte - entry.byte;
            (met.token > 0 || at > 0).then(|| entry.chunk.tail(met.token, at, engine))
        });
        if let Some(tail) = tail {
            until += 1;
            match fresh.last_mut() {
                Some(last) if last.takes_in(&tail) => last.append_from(&tail, 0, 0, engine),
                _ => fresh.push(tail),
            }
        }
        let mut first = from.entry;
        if let Some(entry) = self.entries.get_mut(from.entry) {
            let at = from.byte - entry.byte;
            if at > 0 {
                first += 1;
                let left = Arc::make_mut(&mut entry.chunk);
                left.truncate(from.token, at);
                if let Some(next) = fresh.first().filter(|next| at < TARGET && left.takes_in(next)) {
                    left.append_from(next, 0, 0, engine);
                    fresh.remove(0);
                }
                if !fresh.is_empty() {
                    left.seal();
                }
            }
        }
        self.entries.drain(first.min(until)..until);
        self.insert(first, fresh);
    }

    /// Insert chunks before entry `at`, and count again from there on.
    fn insert(&mut self, at: usize, chunks: Vec<Chunk>) {
        let entry = |mut chunk: Chunk| {
            chunk.seal();
            Entry { chunk: Arc::new(chunk), byte: 0, token: 0 }
        };
        self.entries.splice(at..at, chunks.into_iter().map(entry));
        let from = at.saturating_sub(1);
        let (mut byte, mut token) = match from {
            0 => (0, 0),
            _ => (self.entries[from].byte, self.entries[from].token),
        };
        for entry in &mut self.entries[from..] {
            (entry.byte, entry.token) = (byte, token);
            byte += entry.chunk.text.len();
            token += entry.chunk.ids.len();
        }
        (self.bytes, self.tokens) = (byte, token);
    }

    /// The character boundary at or behind `byte`.
    fn char_boundary(&self, byte: usize) -> usize {
        let Some(entry) = self.entries.get(self.entry_of(byte)) else { return byte };
        entry.byte + utf8::ceil(&entry.chunk.text, (byte - entry.byte).min(entry.chunk.text.len()))
    }
}
