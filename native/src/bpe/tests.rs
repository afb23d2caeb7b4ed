//! Random models against the merge loop written down plainly.

use std::collections::HashMap;

use serde_json::{json, Value};

use super::document;
use super::spelling::{alphabet_byte, Spelling};
use super::*;
use crate::random::Random;

/// The reference's BPE in its plainest form, on strings of the vocabulary's alphabet.
struct Plain {
    vocab: HashMap<String, u32>,
    merges: HashMap<(u32, u32), (usize, u32)>,
    ignore_merges: bool,
}

impl Plain {
    fn new(document: &Value) -> Plain {
        let model = &document["model"];
        let entries = model["vocab"].as_object().unwrap().iter();
        let vocab: HashMap<String, u32> = entries.map(|(k, v)| (k.clone(), v.as_u64().unwrap() as u32)).collect();
        let mut merges = HashMap::new();
        for (rank, merge) in model["merges"].as_array().unwrap().iter().enumerate() {
            let (a, b) = (merge[0].as_str().unwrap(), merge[1].as_str().unwrap());
            merges.insert((vocab[a], vocab[b]), (rank, vocab[&format!("{a}{b}")]));
        }
        Plain { vocab, merges, ignore_merges: model["ignore_merges"] == json!(true) }
    }

    fn encode(&self, piece: &str) -> Vec<u32> {
        if let (true, Some(&id)) = (self.ignore_merges, self.vocab.get(piece)) {
            return vec![id];
        }
        let mut tokens = Vec::new();
        for character in piece.chars() {
            match self.vocab.get(&character.to_string()) {
                Some(&id) => tokens.push(id),
                None => {
                    let bytes = character.to_string().into_bytes();
                    tokens.extend(bytes.iter().filter_map(|byte| self.vocab.get(&format!("<{byte:#04X}>"))));
                }
            }
        }
        let merge_at =
            |tokens: &[u32], at: usize| self.merges.get(&(tokens[at], tokens[at + 1])).map(|m| (m.0, at, m.1));
        while let Some((_, at, id)) = (1..tokens.len()).filter_map(|end| merge_at(&tokens, end - 1)).min() {
            tokens[at] = id;
            tokens.remove(at + 1);
        }
        tokens
    }
}

/// A document with random merges over `symbols`, and the vocabulary they need. `fallback`: tokens of all bytes too.
fn document(random: &mut Random, symbols: &[char], fallback: bool) -> Value {
    let mut tokens: Vec<String> = symbols.iter().map(char::to_string).collect();
    let mut merges = Vec::new();
    for _ in 0..random.below(60) {
        let (a, b) = (random.pick(&tokens).clone(), random.pick(&tokens).clone());
        if a.chars().count() + b.chars().count() <= 12 {
            tokens.push(format!("{a}{b}"));
            merges.push(json!([a, b]));
        }
    }
    // Ranks that do not grow with the tokens, pairs that come twice, and entries that nothing makes.
    for _ in 0..random.below(merges.len() + 1) {
        let (i, j) = (random.below(merges.len()), random.below(merges.len()));
        merges.swap(i, j);
    }
    if !merges.is_empty() && random.below(2) == 0 {
        merges.push(random.pick(&merges).clone());
    }
    for _ in 0..random.below(4) {
        tokens.push((0..1 + random.below(5)).map(|_| *random.pick(symbols)).collect());
    }
    if fallback {
        tokens.extend((0..=255u8).map(|byte| format!("<{byte:#04X}>")));
    }
    tokens.sort();
    tokens.dedup();
    for at in (1..tokens.len()).rev() {
        tokens.swap(at, random.below(at + 1));
    }
    let vocab: serde_json::Map<String, Value> = tokens.into_iter().zip(0..).map(|(t, id)| (t, json!(id))).collect();
    json!({"model": {
        "type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": fallback,
        "ignore_merges": !fallback && random.below(2) == 0,
    }})
}

fn load(document: &Value, symbols: Symbols, mark_spaces: bool, cache_entries: usize) -> Result<Bpe, String> {
    Bpe::from_json(document.to_string().as_bytes(), symbols, mark_spaces, cache_entries)
}

fn ids(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut out = Vec::new();
    bpe.encode(&mut bpe.new_cache(), piece, &mut out);
    out
}

/// A piece of characters, at times long and at times repeating itself.
fn piece(random: &mut Random, of: &[char]) -> String {
    let length = *random.pick(&[1, 2, 3, 5, 9, 20, 40, 150]);
    let part: String = (0..1 + random.below(length)).map(|_| *random.pick(of)).collect();
    part.repeat(1 + random.below(200) * random.below(2) / part.len())
}

/// Checks pieces with a small cache that is used again and again; `text` gives the bytes of a piece.
fn check(random: &mut Random, bpe: &Bpe, plain: &Plain, of: &[char], text: impl Fn(&str) -> Vec<u8>) {
    let mut cache = bpe.new_cache();
    for _ in 0..60 {
        let piece = piece(random, of);
        let expected = plain.encode(&piece);
        let bytes = text(&piece);
        let mut out = vec![7];
        bpe.encode(&mut cache, &bytes, &mut out);
        assert_eq!(out[1..], expected, "{piece:?}");
        let within = [b"ab".as_slice(), &bytes, &b"abcdefgh"[random.below(9)..]].concat();
        match bpe.whole(&within, 2, 2 + bytes.len()) {
            Some(id) => assert_eq!(expected, [id], "{piece:?}"),
            None => {
                out.clear();
                bpe.encode_apart(&mut cache, &within, (2, 2 + bytes.len()), &mut out);
                assert_eq!(out, expected, "{piece:?}");
            }
        }
        if bpe.tiles() {
            assert_eq!(expected.iter().map(|&id| bpe.token_len(id) as usize).sum::<usize>(), bytes.len());
        }
    }
}

fn byte_characters() -> Vec<char> {
    let mut characters: Vec<char> = ('\0'..'\u{200}').filter(|&c| alphabet_byte(c).is_some()).collect();
    characters.sort_by_key(|&c| alphabet_byte(c));
    characters
}

fn bytes_of(piece: &str) -> Vec<u8> {
    piece.chars().filter_map(alphabet_byte).collect()
}

#[test]
fn bytes_merge_as_in_the_plain_loop() {
    let mut random = Random(1);
    let all = byte_characters();
    for round in 0..90 {
        // Few symbols that merge much; among them the bytes of one wide character.
        let mut some: Vec<char> = "你é".bytes().map(|byte| all[usize::from(byte)]).collect();
        some.extend(['a', 'b', 'c', 'Ġ']);
        some.rotate_left(random.below(7));
        some.truncate(2 + random.below(6));
        let mut document = document(&mut random, &some, false);
        let complete = round % 3 != 0;
        if complete {
            let vocab = document["model"]["vocab"].as_object_mut().unwrap();
            for character in &all {
                let id = vocab.len();
                vocab.entry(character.to_string()).or_insert(json!(id));
            }
        }
        let bpe = load(&document, Symbols::Bytes, false, 2).unwrap();
        assert_eq!(bpe.tiles(), complete);
        some.extend(['x', 'Ċ']);
        check(&mut random, &bpe, &Plain::new(&document), &some, bytes_of);
    }
}

#[test]
fn characters_merge_as_in_the_plain_loop() {
    let mut random = Random(2);
    for _ in 0..90 {
        let mark_spaces = random.below(2) == 0;
        let mut some = vec!['▁', 'a', 'b', 'é', '你'];
        some.truncate(2 + random.below(4));
        let document = document(&mut random, &some, true);
        let bpe = load(&document, Symbols::Characters, mark_spaces, 2).unwrap();
        some.extend(['x', '好', '\0', '😀']);
        let text = |piece: &str| {
            let marked = if mark_spaces { piece.replace('▁', " ") } else { piece.into() };
            marked.into_bytes()
        };
        check(&mut random, &bpe, &Plain::new(&document), &some, text);
    }
}

#[test]
fn long_pieces_merge_as_in_the_plain_loop() {
    // Of one or two symbols, so that many rules make the same token and pairs of equal tokens stand in rows.
    let mut random = Random(4);
    for round in 0..160 {
        let document = document(&mut random, &['a', 'b'][..1 + round % 2], false);
        let bpe = load(&document, Symbols::Bytes, false, 2).unwrap();
        let plain = Plain::new(&document);
        for _ in 0..3 {
            let piece: String = (0..66 + random.below(60)).map(|_| *random.pick(&['a', 'a', 'b'])).collect();
            assert_eq!(ids(&bpe, piece.as_bytes()), plain.encode(&piece), "{piece}");
        }
    }
}

#[test]
fn tokens_are_apart_if_their_text_merges_to_something_else() {
    let mut random = Random(3);
    let mut seen = [0; 2];
    for _ in 0..300 {
        let document = document(&mut random, &['a', 'b', 'c'], false);
        let bpe = load(&document, Symbols::Bytes, false, 2).unwrap();
        let plain = Plain { ignore_merges: false, ..Plain::new(&document) };
        for (token, &id) in &plain.vocab {
            let apart = plain.encode(token) != [id];
            assert_eq!(bpe.apart[id as usize], apart, "{token}");
            seen[usize::from(apart)] += 1;
        }
    }
    assert!(seen[0] > 1000 && seen[1] > 100, "{seen:?}");
}

fn small(merges: Value) -> Value {
    let vocab = json!({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5});
    json!({"model": {"vocab": vocab, "merges": merges}})
}

#[test]
fn both_forms_of_merges_are_read() {
    for merges in [json!(["#version: 0.2", "b c", "a b"]), json!([["b", "c"], ["a", "b"]])] {
        let bpe = load(&small(merges), Symbols::Bytes, false, 16).unwrap();
        assert_eq!(ids(&bpe, b"abc"), [0, 5]);
        assert_eq!(ids(&bpe, b"abab"), [3, 3]);
    }
    for line in ["a", "a b c", "a  b"] {
        assert!(load(&small(json!([line])), Symbols::Bytes, false, 16).is_err(), "{line:?}");
    }
    assert!(document::read(br#"{"model": {"vocab": {}, "merges": [["a"]]}}"#).is_err());
    assert!(document::read(br#"{"model": {"vocab": {}, "merges": [["a", "b", "c"]]}}"#).is_err());
}

#[test]
fn escapes_in_the_document_are_read() {
    let json = br#"{"model": {"type": "BPE", "vocab": {"\u0061": 0, "\u0120": 1, "a\u0120": 2}, "merges": ["\u0061 \u0120"]}}"#;
    let bpe = Bpe::from_json(json, Symbols::Bytes, false, 16).unwrap();
    assert_eq!(ids(&bpe, b"a a"), [2, 0]);
}

#[test]
fn the_last_entry_of_a_key_and_the_last_rank_of_a_pair_count() {
    let json = br#"{"model": {"vocab": {"a": 9, "b": 1, "ab": 2, "aba": 8, "a": 3, "ba": 4, "aba": 5},
        "merges": ["a b", "ab a", "b a", "a b"]}}"#;
    let bpe = Bpe::from_json(json, Symbols::Bytes, false, 16).unwrap();
    assert_eq!(ids(&bpe, b"aba"), [3, 4]);
    assert_eq!(ids(&bpe, b"ab"), [2]);
    assert_eq!(ids(&bpe, b"abba"), [2, 4]);
    assert_eq!([9, 8, 3, 5].map(|id| bpe.token_len(id)), [0, 0, 1, 3]);
    let json = br#"{"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "abb": 8, "abb": 5}, "merges": ["a b", "ab b"]}}"#;
    let bpe = Bpe::from_json(json, Symbols::Bytes, false, 16).unwrap();
    assert_eq!([ids(&bpe, b"abb"), ids(&bpe, b"babb")], [vec![5], vec![1, 5]]);
}

/// Makes something in a document wrong.
type Change = fn(&mut Value);

#[test]
fn what_cannot_be_served_is_refused() {
    let refused = |change: Change, symbols: Symbols| {
        let mut document = small(json!([]));
        if symbols == Symbols::Characters {
            let vocab = document["model"]["vocab"].as_object_mut().unwrap();
            vocab.extend((0..=255u8).map(|byte| (format!("<{byte:#04X}>"), json!(100 + u32::from(byte)))));
            document["model"]["byte_fallback"] = json!(true);
        }
        assert!(load(&document, symbols, false, 16).is_ok());
        change(&mut document);
        load(&document, symbols, false, 16).err().expect("a refusal")
    };
    let bytes: [(Change, &str); 9] = [
        (|d| d["model"]["type"] = json!("Unigram"), "not BPE"),
        (|d| d["model"]["dropout"] = json!(0.5), "at random"),
        (|d| d["model"]["continuing_subword_prefix"] = json!("##"), "inside"),
        (|d| d["model"]["end_of_word_suffix"] = json!("</w>"), "inside"),
        (|d| d["model"]["byte_fallback"] = json!(true), "falls back"),
        (|d| d["model"]["unk_token"] = json!("a"), "byte 0x00"),
        (|d| d["model"]["vocab"]["abc"] = json!(0), "the id 0"),
        (|d| d["model"]["vocab"]["abc"] = json!(1u32 << 24), "ids end"),
        (|d| d["model"]["merges"] = json!(["a c"]), "what a merge makes"),
    ];
    for (change, reason) in bytes {
        let error = refused(change, Symbols::Bytes);
        assert!(error.contains(reason), "{error}");
    }
    let characters: [(Change, &str); 5] = [
        (|d| d["model"]["byte_fallback"] = json!(null), "does not fall back"),
        (|d| d["model"]["ignore_merges"] = json!(true), "ignores merges"),
        (|d| _ = d["model"]["vocab"].as_object_mut().unwrap().remove("<0xC3>"), "byte 0xc3"),
        (|d| d["model"]["merges"] = json!([["<0xC3>", "<0xA9>"]]), "what a merge makes"),
        (
            |d| {
                d["model"]["vocab"]["<0xC3>a"] = json!(6);
                d["model"]["merges"] = json!([["<0xC3>", "a"]]);
            },
            "byte fallback",
        ),
    ];
    for (change, reason) in characters {
        let error = refused(change, Symbols::Characters);
        assert!(error.contains(reason), "{error}");
    }
    assert!(Bpe::from_json(b"{", Symbols::Bytes, false, 16).is_err());
    assert!(Bpe::from_json(b"\xFF", Symbols::Bytes, false, 16).is_err());
}

#[test]
fn a_byte_that_is_a_character_of_the_vocabulary_needs_no_fallback() {
    let spelling = Spelling { symbols: Symbols::Characters, mark_spaces: true };
    let mut vocab: serde_json::Map<String, Value> =
        (0..=255u8).map(|byte| (format!("<{byte:#04X}>"), json!(byte))).collect();
    vocab.remove("<0x09>");
    vocab.insert("\t".into(), json!(300));
    let mut document = json!({"model": {"vocab": vocab, "merges": [], "byte_fallback": true}});
    let refusal = load::load(document.to_string().as_bytes(), spelling, 16).err().expect("a refusal");
    assert!(refusal.contains("mark of a space"), "{refusal}");
    document["model"]["vocab"]["▁"] = json!(301);
    let bpe = load::load(document.to_string().as_bytes(), spelling, 16).unwrap();
    assert_eq!(ids(&bpe, "\t é".as_bytes()), [300, 301, 0xC3, 0xA9]);
    assert_eq!([300, 301, 0xC3, 999].map(|id| bpe.token_len(id)), [1, 1, 1, 0]);
}

#[test]
fn lengths_and_trims_are_those_of_the_strings() {
    let mut document = small(json!([]));
    document["model"]["vocab"]["ĠĠaĠ"] = json!(6);
    document["added_tokens"] = json!([{"content": " é\n\n", "id": 8}, {"content": "longer", "id": 3}]);
    let bpe = load(&document, Symbols::Bytes, false, 16).unwrap();
    assert_eq!([0, 3, 6, 7, 8, 9].map(|id| bpe.token_len(id)), [1, 2, 4, 0, 5, 0]);
    assert_eq!([0, 6, 8, 9].map(|id| bpe.trim(id)), [(0, 0), (2, 1), (1, 2), (0, 0)]);
    assert_eq!(bpe.vocabulary_size(), 9);
}

#[test]
fn a_very_long_piece_is_merged_like_any_other() {
    let mut vocab = json!({});
    let mut merges = Vec::new();
    for power in 0..8 {
        vocab["a".repeat(1 << power)] = json!(power);
        if power > 0 {
            merges.push(json!(["a".repeat(1 << (power - 1)), "a".repeat(1 << (power - 1))]));
        }
    }
    let bpe = load(&json!({"model": {"vocab": vocab, "merges": merges}}), Symbols::Bytes, false, 16).unwrap();
    let mut expected = vec![7; (1 << 20) / 128];
    expected.extend([1, 0]);
    assert_eq!(ids(&bpe, &vec![b'a'; (1 << 20) + 3]), expected);
}
