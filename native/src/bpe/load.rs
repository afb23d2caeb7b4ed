//! From a tokenizer.json to a model.

use super::document::{self, Added, Merge, Model, Text};
use super::joins::Joins;
use super::merges::{Merges, RANK_LIMIT};
use super::spelling::{Spelling, Symbols};
use super::symbols::Alphabet;
use super::table::{Table, ID_LIMIT};
use super::texts::Texts;
use super::{whole, Bpe, NONE};

/// Builds the model of a document.
pub fn load(json: &[u8], spelling: Spelling, cache_entries: usize) -> Result<Bpe, String> {
    let document = document::read(json)?;
    let model = &document.model;
    refuse_unsupported(model, spelling.symbols)?;
    let mut loader = Loader::new(spelling, model.vocab.0.iter().map(|entry| entry.1).max())?;
    loader.insert_vocabulary(model)?;
    loader.check_alphabet(model)?;
    loader.insert_merges(&model.merges)?;
    loader.measure_added(document.added_tokens.as_deref().unwrap_or_default())?;
    Ok(loader.finish(model.ignore_merges == Some(true), cache_entries))
}

fn refuse_unsupported(model: &Model, symbols: Symbols) -> Result<(), String> {
    let some = |text: &Option<Text>| text.as_ref().is_some_and(|text| !text.0.is_empty());
    if model.kind.as_ref().is_some_and(|kind| kind.0 != "BPE") {
        return Err("the model is not BPE".into());
    }
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err("the model drops merges at random".into());
    }
    if some(&model.continuing_subword_prefix) || some(&model.end_of_word_suffix) {
        return Err("the model marks tokens inside or at the end of words".into());
    }
    if model.merges.len() >= RANK_LIMIT {
        return Err(format!("the model has {RANK_LIMIT} merges or more"));
    }
    let falls_back = model.byte_fallback == Some(true);
    match symbols {
        Symbols::Bytes if falls_back => Err("the model falls back to bytes, which its symbols are already".into()),
        Symbols::Characters if !falls_back => Err("the model does not fall back to bytes".into()),
        Symbols::Characters if model.ignore_merges == Some(true) => Err("the model ignores merges".into()),
        _ => Ok(()),
    }
}

/// The tables of a model while it is loaded.
struct Loader {
    spelling: Spelling,
    texts: Texts,
    table: Table,
    alphabet: Alphabet,
    merges: Merges,
    joins: Joins,
    lengths: Vec<u32>,
    trims: Vec<(u8, u8)>,
}

impl Loader {
    fn new(spelling: Spelling, largest_id: Option<u32>) -> Result<Loader, String> {
        let mut loader = Loader {
            spelling,
            texts: Texts::default(),
            table: Table::default(),
            alphabet: Alphabet::new(spelling.symbols),
            merges: Merges::new(0),
            joins: Joins::default(),
            lengths: Vec::new(),
            trims: Vec::new(),
        };
        if let Some(id) = largest_id {
            loader.make_room(id)?;
        }
        Ok(loader)
    }

    fn make_room(&mut self, id: u32) -> Result<(), String> {
        if id >= ID_LIMIT {
            return Err(format!("there is the id {id}; ids end at {ID_LIMIT}"));
        }
        let count = self.lengths.len().max(id as usize + 1);
        self.lengths.resize(count, 0);
        self.trims.resize(count, (0, 0));
        Ok(())
    }

    fn insert_vocabulary(&mut self, model: &Model) -> Result<(), String> {
        let spelling = self.spelling;
        for (token, id) in &model.vocab.0 {
            self.texts.push(*id, |out| spelling.spell(&token.0, out));
            self.trims[*id as usize] = spaces_around(&token.0);
        }
        self.table = Table::new(self.texts.iter().map(|(text, _)| text.len()));
        for (text, id) in self.texts.iter() {
            let replaced = self.table.insert(text, id);
            if replaced != NONE {
                self.lengths[replaced as usize] = 0; // the reference, too, keeps the last entry of a key
            }
            let length = self.alphabet.insert(text, id).unwrap_or(text.len() as u32);
            if std::mem::replace(&mut self.lengths[id as usize], length) != 0 {
                return Err(format!("two entries of the vocabulary have the id {id}"));
            }
        }
        Ok(())
    }

    /// A unit without a token is dropped in silence where there is no unknown token, and cannot be served otherwise.
    fn check_alphabet(&self, model: &Model) -> Result<(), String> {
        if self.spelling.mark_spaces && self.table.get(b" ") == NONE {
            return Err("the vocabulary has no token for the mark of a space".into());
        }
        let missing = self.alphabet.missing();
        let drops = self.spelling.symbols == Symbols::Bytes && model.unk_token.is_none();
        match missing.first() {
            Some(byte) if !drops => Err(format!("the vocabulary has no token for the byte {byte:#04x}")),
            _ => Ok(()),
        }
    }

    fn insert_merges(&mut self, merges: &[Merge]) -> Result<(), String> {
        self.merges = Merges::new(merges.len());
        let mut products = Products::new(&self.texts, &self.lengths);
        let mut made = vec![false; self.lengths.len()];
        let mut text = Vec::new();
        for (rank, merge) in (0..).zip(merges) {
            text.clear();
            let left = self.side(&merge.0, &mut text)?;
            let middle = text.len();
            let right = self.side(&merge.1, &mut text)?;
            if left == NONE || right == NONE {
                continue;
            }
            let product = products.get(&self.table, &text);
            if product == NONE || middle == text.len() {
                return Err(format!("the vocabulary lacks what a merge makes: {:?} {:?}", merge.0, merge.1));
            }
            if [left, right, product].iter().any(|&id| self.alphabet.is_fallback(id)) {
                return Err(format!("a merge has a token of byte fallback: {:?} {:?}", merge.0, merge.1));
            }
            self.merges.insert(left, right, rank, product);
            if !std::mem::replace(&mut made[product as usize], true) {
                self.joins.insert(&text);
            }
        }
        if let Alphabet::Bytes(ids) = &self.alphabet {
            self.merges.index_bytes(ids);
        }
        Ok(())
    }

    /// The token that is one side of a merge, or `NONE` if no text has it; its text is appended.
    fn side(&self, token: &str, text: &mut Vec<u8>) -> Result<u32, String> {
        let start = text.len();
        if token.is_empty() || !self.spelling.spell(token, text) {
            return Ok(NONE);
        }
        match self.table.get(&text[start..]) {
            NONE => Err(format!("the vocabulary lacks a side of a merge: {token:?}")),
            id => Ok(id),
        }
    }

    /// Lengths of added tokens that the model does not have itself.
    fn measure_added(&mut self, tokens: &[Added]) -> Result<(), String> {
        for token in tokens {
            self.make_room(token.id)?;
            let at = token.id as usize;
            if self.lengths[at] == 0 {
                self.lengths[at] = token.content.0.len() as u32;
                self.trims[at] = spaces_around(&token.content.0);
            }
        }
        Ok(())
    }

    fn finish(mut self, ignore_merges: bool, cache_entries: usize) -> Bpe {
        let mut apart = vec![false; self.lengths.len()];
        for (text, id) in whole::apart(&self.texts, &self.alphabet, &self.merges, apart.len()) {
            apart[id as usize] = true;
            if !ignore_merges {
                self.table.insert(text, NONE);
            }
        }
        Bpe {
            drops: !self.alphabet.missing().is_empty(),
            table: self.table,
            apart,
            alphabet: self.alphabet,
            merges: self.merges,
            joins: self.joins,
            lengths: self.lengths,
            trims: self.trims,
            cache_entries,
        }
    }
}

/// Looks up what merges make. Vocabularies mostly list it in the order of the merges, so the entry after the last one
/// that was found is tried first.
struct Products<'a> {
    texts: &'a Texts,
    /// By id; 0 where another entry replaced the token's.
    lengths: &'a [u32],
    place_of: Vec<usize>,
    next: usize,
}

impl<'a> Products<'a> {
    fn new(texts: &'a Texts, lengths: &'a [u32]) -> Products<'a> {
        let mut place_of = vec![0; lengths.len()];
        for (place, (_, id)) in texts.iter().enumerate() {
            place_of[id as usize] = place;
        }
        Products { texts, lengths, place_of, next: 0 }
    }

    /// The token with this text, or `NONE`.
    fn get(&mut self, table: &Table, text: &[u8]) -> u32 {
        let id = match self.texts.get(self.next) {
            Some((expected, id)) if expected == text && self.lengths[id as usize] != 0 => id,
            _ => table.get(text),
        };
        if id != NONE {
            self.next = self.place_of[id as usize] + 1;
        }
        id
    }
}

/// How many characters before and after the rest of a token are white space, or stand for the space.
fn spaces_around(token: &str) -> (u8, u8) {
    let space = |character: &char| *character == '\u{120}' || character.is_whitespace();
    let count = |count: usize| count.min(255) as u8;
    (count(token.chars().take_while(space).count()), count(token.chars().rev().take_while(space).count()))
}
