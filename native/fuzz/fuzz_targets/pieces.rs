//! Any merges and any piece: the engine's ids are those of the plainest possible merge loop, cached or not.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use toksplice_native::bpe::{Bpe, Symbols};

const MERGES_MAX: usize = 64;
/// The plain merge loop takes the square of this.
const PIECE_MAX: usize = 160;
/// Entries of the piece cache; few, so that they are replaced.
const CACHE: usize = 4;

/// What the fuzzer's bytes stand for: flags, the number of merges, the length of a piece, two bytes for each merge, and
/// the text that is cut into the pieces.
struct Case {
    ignore_merges: bool,
    /// The bytes that are text. Few, in most cases, so that the same merges meet again.
    letters: Vec<u8>,
    /// Each joins two tokens, named by their place among the letters and what was merged before, modulo its size.
    merges: Vec<(u8, u8)>,
    pieces: Vec<Vec<u8>>,
}

impl Case {
    fn read(data: &[u8]) -> Option<Case> {
        let (&[flags, merges, piece], rest) = data.split_first_chunk()?;
        let letters: Vec<u8> = match flags >> 1 {
            0 => (0..=255).collect(),
            few => (b'a'..).take(1 + usize::from(few) % 8).collect(),
        };
        let (merges, text) = rest.split_at(rest.len().min(2 * (usize::from(merges) % MERGES_MAX)));
        let text: Vec<u8> = text.iter().map(|&byte| letters[usize::from(byte) % letters.len()]).collect();
        Some(Case {
            ignore_merges: flags & 1 == 1,
            letters,
            merges: merges.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
            pieces: text.chunks(1 + usize::from(piece) % PIECE_MAX).map(<[u8]>::to_vec).collect(),
        })
    }
}

/// The vocabulary that a case describes: the 256 bytes, then what the merges make.
struct Model {
    tokens: Vec<Vec<u8>>,
    /// Rank and product of each pair of ids; of a repeated pair the last rank counts.
    merges: HashMap<(u32, u32), (usize, u32)>,
    pairs: Vec<(u32, u32)>,
}

impl Model {
    fn new(letters: &[u8], merges: &[(u8, u8)]) -> Self {
        let mut model =
            Model { tokens: (0..=255).map(|byte| vec![byte]).collect(), merges: HashMap::new(), pairs: Vec::new() };
        let mut ids: HashMap<Vec<u8>, u32> = model.tokens.iter().cloned().zip(0..).collect();
        let mut named: Vec<u32> = letters.iter().copied().map(u32::from).collect();
        for &(left, right) in merges {
            let token = |place: u8| named[usize::from(place) % named.len()];
            let product = model.merge(&mut ids, token(left), token(right));
            named.push(product);
        }
        model
    }

    fn merge(&mut self, ids: &mut HashMap<Vec<u8>, u32>, left: u32, right: u32) -> u32 {
        let joined = [&self.tokens[left as usize][..], &self.tokens[right as usize]].concat();
        let next = self.tokens.len() as u32;
        let id = *ids.entry(joined.clone()).or_insert(next);
        if id == next {
            self.tokens.push(joined);
        }
        self.merges.insert((left, right), (self.pairs.len(), id));
        self.pairs.push((left, right));
        id
    }

    fn json(&self, ignore_merges: bool) -> Vec<u8> {
        let name = |id: u32| alphabet(&self.tokens[id as usize]);
        let vocabulary: HashMap<String, u32> = (0..self.tokens.len() as u32).map(|id| (name(id), id)).collect();
        let merges: Vec<[String; 2]> = self.pairs.iter().map(|&(left, right)| [name(left), name(right)]).collect();
        let model = json!({"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": ignore_merges});
        json!({"version": "1.0", "added_tokens": [], "model": model}).to_string().into_bytes()
    }

    fn encode(&self, piece: &[u8], ignore_merges: bool) -> Vec<u32> {
        if ignore_merges {
            if let Some(id) = self.tokens.iter().position(|token| token == piece) {
                return vec![id as u32];
            }
        }
        let mut ids: Vec<u32> = piece.iter().map(|&byte| u32::from(byte)).collect();
        loop {
            let ranked = ids.windows(2).enumerate().filter_map(|(at, pair)| {
                let (rank, id) = self.merges.get(&(pair[0], pair[1]))?;
                Some((*rank, at, *id))
            });
            let Some((_, at, id)) = ranked.min() else {
                return ids;
            };
            ids.splice(at..at + 2, [id]);
        }
    }
}

/// The GPT-2 alphabet: printable bytes stand for themselves, the others for the characters from U+0100 on.
fn alphabet(bytes: &[u8]) -> String {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let character = |byte: u8| match printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&other| !printable(other)).count() as u32;
            char::from_u32(0x100 + before).expect("fewer than 256 bytes are not printable")
        }
    };
    bytes.iter().copied().map(character).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some(case) = Case::read(data) else {
        return;
    };
    let model = Model::new(&case.letters, &case.merges);
    let json = model.json(case.ignore_merges);
    let bpe = Bpe::from_json(&json, Symbols::Bytes, false, CACHE).expect("the vocabulary is well formed");
    assert!(bpe.tiles());
    let mut cache = bpe.new_cache();
    // The second round meets the cache as the first has left it.
    for piece in case.pieces.iter().chain(&case.pieces) {
        let mut ids = Vec::new();
        bpe.encode(&mut cache, piece, &mut ids);
        assert_eq!(ids, model.encode(piece, case.ignore_merges), "{piece:?}");
        let covered: usize = ids.iter().map(|&id| bpe.token_len(id) as usize).sum();
        assert_eq!(covered, piece.len());
    }
});
