//! A walk over the restart places of a session, from left to right.

use super::chunk::Lengths;
use super::{Entry, Session};
use crate::engine::Engine;

/// A token of a session: chunk, token in it, and the byte of the session's text at which it begins.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub entry: usize,
    pub token: usize,
    pub byte: usize,
}

pub struct Cursor<'a> {
    entries: &'a [Entry],
    lengths: &'a Engine,
    place: Place,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first token at or behind `byte`.
    pub fn new(session: &'a Session, lengths: &'a Engine, byte: usize) -> Self {
        let entry = session.entry_of(byte);
        let entries = session.entries();
        let place = match entries.get(entry) {
            None => Place { entry, token: 0, byte },
            Some(found) => {
                let (token, at) = found.chunk.first_token_from(byte - found.byte, lengths);
                Place { entry, token, byte: found.byte + at }
            }
        };
        Self { entries, lengths, place }
    }

    /// The place at `byte` if a scan may restart there. Asked with ascending positions.
    pub fn restart_at(&mut self, byte: usize) -> Option<Place> {
        loop {
            let entry = self.entries.get(self.place.entry)?;
            let chunk = &entry.chunk;
            if self.place.token >= chunk.ids.len() {
                let next = self.entries.get(self.place.entry + 1)?;
                self.place = Place {
                    entry: self.place.entry + 1,
                    token: 0,
                    byte: next.byte + next.chunk.position(0, self.lengths),
                };
                continue;
            }
            if self.place.byte > byte {
                return None;
            }
            if self.place.byte == byte && chunk.restarts.get(self.place.token) {
                return Some(self.place);
            }
            self.place.token += 1;
            // Tokens without a span of their own have a length that the table gives.
            self.place.byte = if chunk.has_spans() {
                entry.byte + chunk.position(self.place.token, self.lengths)
            } else {
                self.place.byte + self.lengths.length(chunk.ids[self.place.token - 1])
            };
        }
    }
}
