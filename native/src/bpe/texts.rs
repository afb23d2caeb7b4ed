//! The texts of the tokens of a vocabulary, one after the other in one buffer.

#[derive(Default)]
pub struct Texts {
    bytes: Vec<u8>,
    tokens: Vec<(usize, u32)>, // where a text ends, and its id
}

impl Texts {
    /// Adds the text that `spell` appends to a buffer; nothing if `spell` gives false or appends nothing.
    pub fn push(&mut self, id: u32, spell: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        if spell(&mut self.bytes) && self.bytes.len() > start {
            self.tokens.push((self.bytes.len(), id));
        }
    }

    /// A text and its id by place, in the order they were added.
    pub fn get(&self, at: usize) -> Option<(&[u8], u32)> {
        let &(end, id) = self.tokens.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.tokens[before].0);
        Some((&self.bytes[start..end], id))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> + Clone {
        let mut start = 0;
        self.tokens.iter().map(move |&(end, id)| (&self.bytes[std::mem::replace(&mut start, end)..end], id))
    }
}
