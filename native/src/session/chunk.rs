//! A stretch of a session: some text, its tokens, and where a scan may restart in it.
//!
//! A session is a list of chunks of bounded size, so an edit moves bytes of a chunk and never of the whole text, and
//! sessions that share a beginning can share its chunks. Every chunk but the first begins where a scan may restart.

use super::bits::Bits;
use super::{SPANNED_TARGET, TARGET};

/// Tokens between two entries of the position index.
const STEP: usize = 64;

/// A piece that depends on text far behind its end; positions are bytes of the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Exception {
    pub end: u32,
    /// Position after the last byte that decided on the piece.
    pub reach: u32,
}

#[derive(Clone, Default)]
pub struct Chunk {
    pub text: Vec<u8>,
    pub ids: Vec<u32>,
    /// By token: whether a scan may restart where it begins.
    pub restarts: Bits,
    /// Pieces whose reach is more than `SLACK` behind their end, in order.
    pub exceptions: Vec<Exception>,
    /// Byte positions of tokens 0, STEP, 2 * STEP, ...; empty while there are spans.
    index: Vec<u32>,
    /// Byte spans of all tokens, kept only when the tokens do not tile the text.
    spans: Option<Vec<(u32, u32)>>,
}

/// Gives the bytes of text that each token covers when the tokens tile the text.
pub trait Lengths {
    fn length(&self, id: u32) -> usize;
}

impl Chunk {
    /// An empty chunk with room for the tokens of `bytes` of usual text.
    pub fn with_room(bytes: usize) -> Self {
        let tokens = bytes / 3;
        let (ids, index) = (Vec::with_capacity(tokens), Vec::with_capacity(tokens.div_ceil(STEP)));
        Self { ids, index, restarts: Bits::with_room(tokens), ..Self::default() }
    }

    pub fn has_spans(&self) -> bool {
        self.spans.is_some()
    }

    /// Append a token with its span.
    #[inline(always)]
    pub fn push(&mut self, id: u32, (start, end): (usize, usize), restartable: bool) {
        match &mut self.spans {
            Some(spans) => spans.push((start as u32, end as u32)),
            None if self.ids.len() % STEP == 0 => self.index.push(start as u32),
            None => {}
        }
        self.ids.push(id);
        self.restarts.push(restartable);
    }

    /// Note tokens `from..` that were pushed to `ids` already, one behind the other and each restartable; number n of them,
    /// and the end of the last one, are at `start(n)`.
    #[inline(always)]
    pub fn index_pushed(&mut self, from: usize, start: impl Fn(usize) -> usize) {
        let count = self.ids.len() - from;
        self.restarts.push_ones(count);
        if let Some(spans) = &mut self.spans {
            spans.extend((0..count).map(|n| (start(n) as u32, start(n + 1) as u32)));
            return;
        }
        let mut marked = from.next_multiple_of(STEP);
        while marked < self.ids.len() {
            self.index.push(start(marked - from) as u32);
            marked += STEP;
        }
    }

    /// Note the positions of tokens `from..` that were pushed to `ids` already and tile the text from `start` on.
    #[inline(always)]
    pub fn index_tiled(&mut self, from: usize, start: usize, lengths: &impl Lengths) {
        if let Some(spans) = &mut self.spans {
            let mut at = start;
            for &id in &self.ids[from..] {
                let next = at + lengths.length(id);
                spans.push((at as u32, next as u32));
                at = next;
            }
            return;
        }
        // The first token at or behind `from` that is a multiple of STEP, if it is there.
        let marked = from.next_multiple_of(STEP);
        if marked < self.ids.len() {
            self.index_marked(from, start, marked, lengths);
        }
    }

    #[cold]
    fn index_marked(&mut self, from: usize, start: usize, marked: usize, lengths: &impl Lengths) {
        let mut at = start;
        for i in from..self.ids.len() {
            if i >= marked && i % STEP == 0 {
                self.index.push(at as u32);
            }
            at += lengths.length(self.ids[i]);
        }
    }

    /// Note the spans of the tokens that were pushed to `ids` already and do not tile the text.
    pub fn add_spans(&mut self, added: impl Iterator<Item = (u32, u32)>, lengths: &impl Lengths) {
        self.make_spans(lengths);
        self.spans.as_mut().expect("made just now").extend(added);
    }

    /// Go over from the index to explicit spans.
    fn make_spans(&mut self, lengths: &impl Lengths) {
        if self.spans.is_some() {
            return;
        }
        // Tokens behind those that the index knows of have no positions yet: their spans are added by the caller.
        let known = self.restarts.count();
        let mut at = 0;
        let mut spans = Vec::with_capacity(self.ids.len());
        for &id in &self.ids[..known.min(self.ids.len())] {
            let next = at + lengths.length(id) as u32;
            spans.push((at, next));
            at = next;
        }
        self.index = Vec::new();
        self.spans = Some(spans);
    }

    /// Where token `token` begins; the end of the text for one past the last.
    pub fn position(&self, token: usize, lengths: &impl Lengths) -> usize {
        if token >= self.ids.len() {
            return self.text.len();
        }
        if let Some(spans) = &self.spans {
            return spans[token].0 as usize;
        }
        let base = token / STEP;
        let from = base * STEP;
        self.index[base] as usize + self.ids[from..token].iter().map(|&id| lengths.length(id)).sum::<usize>()
    }

    /// The tokens [from, to), in order: id, and byte span.
    pub fn for_each_token(
        &self,
        from: usize,
        to: usize,
        lengths: &impl Lengths,
        mut take: impl FnMut(u32, usize, usize),
    ) {
        let ids = &self.ids[from..to];
        if let Some(spans) = &self.spans {
            ids.iter().zip(&spans[from..to]).for_each(|(&id, &(start, end))| take(id, start as usize, end as usize));
            return;
        }
        let mut at = self.position(from, lengths);
        for &id in ids {
            let next = at + lengths.length(id);
            take(id, at, next);
            at = next;
        }
    }

    /// The first token that begins at or behind byte `at`, and where it begins.
    pub fn first_token_from(&self, at: usize, lengths: &impl Lengths) -> (usize, usize) {
        if let Some(spans) = &self.spans {
            // Starts never fall back from one piece to the next, and within a piece they may: look at all up to `at`.
            let token = spans.iter().position(|span| span.0 as usize >= at).unwrap_or(spans.len());
            return (token, self.position(token, lengths));
        }
        let block = self.index.partition_point(|&start| (start as usize) < at).saturating_sub(1);
        let mut token = block * STEP;
        let mut position = self.index.get(block).map_or(self.text.len(), |&start| start as usize);
        while token < self.ids.len() && position < at {
            position += lengths.length(self.ids[token]);
            token += 1;
        }
        if token == self.ids.len() {
            position = self.text.len();
        }
        (token, position)
    }

    /// The last token at or before byte `limit` before which a scan may restart, and where it begins.
    pub fn last_restart(&self, limit: usize, lengths: &impl Lengths) -> Option<(usize, usize)> {
        let (mut token, position) = self.first_token_from(limit, lengths);
        if token == self.ids.len() || position > limit {
            token = token.checked_sub(1)?;
        }
        let found = self.restarts.last_set(token)?;
        Some((found, self.position(found, lengths)))
    }

    /// Drop everything from token `token`, which begins at byte `at`, on.
    pub fn truncate(&mut self, token: usize, at: usize) {
        self.text.truncate(at);
        self.ids.truncate(token);
        self.restarts.truncate(token);
        let keep = self.exceptions.partition_point(|exception| exception.end as usize <= at);
        self.exceptions.truncate(keep);
        match &mut self.spans {
            Some(spans) => spans.truncate(token),
            None => self.index.truncate(token.div_ceil(STEP)),
        }
    }

    /// What lies from token `token`, which begins at byte `at`, on: a chunk of its own.
    pub fn tail(&self, token: usize, at: usize, lengths: &impl Lengths) -> Self {
        let mut tail = Self::default();
        tail.append_from(self, token, at, lengths);
        tail
    }

    /// Whether this chunk and the next one are better one: not too long, and not explicit spans for the sake of a few.
    pub fn takes_in(&self, next: &Self) -> bool {
        let target = if self.has_spans() == next.has_spans() { TARGET } else { SPANNED_TARGET };
        self.text.len() + next.text.len() < 2 * target
    }

    /// Append what `other` holds from token `token`, which begins at its byte `at`, on.
    pub fn append_from(&mut self, other: &Self, token: usize, at: usize, lengths: &impl Lengths) {
        let base = self.text.len();
        let shift = |position: u32| (position as usize - at + base) as u32;
        if other.spans.is_some() {
            self.make_spans(lengths);
        }
        let first = self.ids.len();
        self.ids.extend_from_slice(&other.ids[token..]);
        match (&mut self.spans, &other.spans) {
            (Some(spans), Some(others)) => spans.extend(others[token..].iter().map(|s| (shift(s.0), shift(s.1)))),
            _ => self.index_tiled(first, base, lengths),
        }
        self.restarts.extend(&other.restarts, token);
        self.text.extend_from_slice(&other.text[at..]);
        let from = other.exceptions.partition_point(|exception| exception.end as usize <= at);
        let moved = |e: &Exception| Exception { end: shift(e.end), reach: shift(e.reach) };
        self.exceptions.extend(other.exceptions[from..].iter().map(moved));
    }

    /// Give back the growth slack.
    pub fn seal(&mut self) {
        self.text.shrink_to_fit();
        self.ids.shrink_to_fit();
        self.restarts.shrink();
        self.exceptions.shrink_to_fit();
        self.index.shrink_to_fit();
        if let Some(spans) = &mut self.spans {
            spans.shrink_to_fit();
        }
    }

    /// Memory held, growth slack and the chunk itself included.
    pub fn heap_bytes(&self) -> usize {
        std::mem::size_of::<Self>()
            + self.text.capacity()
            + 4 * (self.ids.capacity() + self.index.capacity())
            + self.restarts.heap_bytes()
            + 8 * self.exceptions.capacity()
            + 8 * self.spans.as_ref().map_or(0, Vec::capacity)
    }
}
