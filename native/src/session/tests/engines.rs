//! Small engines of every kind, for tests and the fuzzer: split patterns as tables written by hand, and a few merges.

use serde_json::{json, Map, Value};

use crate::bpe::{Bpe, Symbols};
use crate::engine::{Engine, Program};
use crate::scan::added::AddedToken;
use crate::scan::automaton::Automaton;
use crate::scan::normal::{Form, Normalizer};
use crate::scan::{Levels, Pieces, Prepend};

/// Pieces that are remembered; few, so that they are replaced.
const CACHE: usize = 4;
/// In a table: the best match so far ends right before the unit that was read.
const ACCEPT: u16 = 0x8000;
const CODE_POINTS: u32 = 0x11_0000;

/// A state's name, and what it goes to at each class and at the end of the stretch: a state, or `.` where no thread is
/// left; with `!` when a match ends right before.
type Row = (&'static str, &'static str);

/// `=+>| ?\p{L}+|[0-9]{1,3}| ?[^\s\p{L}0-9=]+|\s*[\r\n]+|\s+(?!\S)|\s+|=`
const WORDS: &[Row] = &[
    //     ' ' \s  \n  \p{L} 0-9 other >  =  end
    (".", ".   .   .   .     .   .    .   .   ."),
    ("S", "P   W   N   L     D   O    O   E   ."),
    ("P", "WW! WW! N   L     !   O    O   !   !"),
    ("W", "WW! WW! N   !     !   !    !   !   !"),
    ("WW", "WW! WW! N  .     .   .    .   .   !"),
    ("N", "NW! NW! N!  !     !   !    !   !   !"),
    ("NW", "NW NW  N   .     .   .    .   .   ."),
    ("L", "!   !   !   L!    !   !    !   !   !"),
    ("D", "!   !   !   !     DD! !    !   !   !"),
    ("DD", "!  !   !   !     X!  !    !   !   !"),
    ("O", "!   !   !   !     !   O!   O!  !   !"),
    ("E", "!   !   !   !     !   !    X   EE! !"),
    ("EE", ".  .   .   .     .   .    X   EE  ."),
    ("X", "!   !   !   !     !   !    !   !   !"),
];

fn word_class(char: char) -> u8 {
    match char {
        ' ' => 0,
        '\n' | '\r' => 2,
        '0'..='9' => 4,
        '>' => 6,
        '=' => 7,
        _ if char.is_whitespace() => 1,
        _ if char.is_alphabetic() => 3,
        _ => 5,
    }
}

/// `[0-9]{1,3}|\([^()]*\)`, which reads far when a bracket is not closed.
const GROUPS: &[Row] = &[
    //     0-9 (  )  other end
    (".", ".   .  .  .  ."),
    ("S", "D   B  .  .  ."),
    ("D", "DD! !  !  !  !"),
    ("DD", "X! !  !  !  !"),
    ("B", "B   .  X  B  ."),
    ("X", "!   !  !  !  !"),
];

fn group_class(char: char) -> u8 {
    match char {
        '0'..='9' => 0,
        '(' => 1,
        ')' => 2,
        _ => 3,
    }
}

/// `\p{L}+`, which leaves most of a text between its matches.
const LETTERS: &[Row] = &[(".", ". . ."), ("S", "L . ."), ("L", "L! ! !")];

fn automaton(rows: &[Row], classes: &[u8], keeps_gaps: bool) -> Automaton {
    let entry = |cell: &str| -> u16 {
        let (name, accept) = match cell.strip_suffix('!') {
            Some(name) => (name, ACCEPT),
            None => (cell, 0),
        };
        let state = if name.is_empty() { Some(0) } else { rows.iter().position(|row| row.0 == name) };
        state.expect("a state of the table") as u16 | accept
    };
    let table: Vec<u16> = rows.iter().flat_map(|row| row.1.split_whitespace().map(entry)).collect();
    Automaton::new(classes, table.len() / rows.len(), table, keeps_gaps).expect("a table of the right shape")
}

fn level(rows: &[Row], class: fn(char) -> u8, keeps_gaps: bool) -> Automaton {
    let classes: Vec<u8> = (0..CODE_POINTS).map(|point| char::from_u32(point).map_or(1, class)).collect();
    automaton(rows, &classes, keeps_gaps)
}

fn words() -> Automaton {
    level(WORDS, word_class, true)
}

fn groups() -> Automaton {
    level(GROUPS, group_class, true)
}

fn letters(keeps_gaps: bool) -> Automaton {
    level(LETTERS, |char| u8::from(!char.is_alphabetic()), keeps_gaps)
}

/// Reads bytes, and cuts within characters: some of their bytes count as digits.
fn bytes() -> Automaton {
    let class = |byte: u8| match byte {
        ..0x80 => word_class(char::from(byte)),
        0x80..0xaa => 4,
        0xaa.. => 3,
    };
    automaton(WORDS, &(0..=255).map(class).collect::<Vec<u8>>(), true)
}

/// Merges in the order of their ranks, as text; some make parts of characters.
const BYTE_MERGES: [(&[u8], &[u8]); 20] = [
    (b"a", b"b"),
    (b" ", b"a"),
    (b" a", b"b"),
    (b"ab", b"ab"),
    (b" ", b" "),
    (b"  ", b"  "),
    (b"\n", b"\n"),
    (b" ", b"\n"),
    (b"=", b"="),
    (b"=", b">"),
    (b"1", b"2"),
    (b"2", b"3"),
    (b"x", b"x"),
    (b"xx", b"xx"),
    (b"\xc3", b"\xa9"),
    (b"\xe4", b"\xbd"),
    (b"\xa0", b"\xe5"),
    (b"\xcc", b"\x81"),
    (b"\xcc\x81", b"\xcc"),
    (b" ", b"\xc3\xa9"),
];
const CHARACTER_MERGES: [(&str, &str); 10] = [
    ("a", "b"),
    ("▁", "▁"),
    ("▁▁", "▁▁"),
    ("▁", "a"),
    ("▁a", "b"),
    ("b", "▁"),
    ("你", "好"),
    ("x", "x"),
    ("xx", "xx"),
    ("=", "é"),
];
/// Bytes that have no token where a vocabulary is to lack some: a letter, and what some characters begin with.
const LACKING: [u8; 2] = [b'q', 0xe2];

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

/// What a tokenizer says of an added token.
struct Added {
    content: &'static str,
    normalized: bool,
    lstrip: bool,
    rstrip: bool,
}

const fn added(content: &'static str, normalized: bool) -> Added {
    Added { content, normalized, lstrip: false, rstrip: false }
}

const PLAIN: [Added; 4] =
    [added("<s>", false), added("<s><s>", false), added("<a rather long token>", false), added("ab<", false)];
const STRIPPING: [Added; 4] = [
    added("<s>", false),
    Added { lstrip: true, ..added("<l>", false) },
    Added { rstrip: true, ..added("<r>", false) },
    Added { lstrip: true, rstrip: true, ..added("<both>", false) },
];
/// Matched after normalization; "é" is composed there or not.
const COMPOSED: [Added; 4] = [
    added("<s>", false),
    added("\u{e9}\u{e9}", true),
    added("fi", true),
    Added { rstrip: true, ..added("<a rather long token>", true) },
];
const IN_CHARACTERS: [Added; 4] = [
    added("<s>", false),
    Added { rstrip: true, ..added("<r>", false) },
    added("<a rather long token>", true),
    added("ab<", true),
];

/// What an engine is made of, apart from its vocabulary.
struct Parts {
    pieces: Pieces,
    normalizer: Option<Normalizer>,
    added: &'static [Added],
    trim_offsets: bool,
}

fn engine(mut model: Value, vocabulary: Map<String, Value>, symbols: Symbols, marks: bool, parts: Parts) -> Engine {
    let first = vocabulary.len();
    model["vocab"] = Value::Object(vocabulary);
    let tokens: Vec<Value> =
        parts.added.iter().zip(first..).map(|(token, id)| json!({"id": id, "content": token.content})).collect();
    let json = json!({"added_tokens": tokens, "model": model}).to_string();
    let model = Bpe::from_json(json.as_bytes(), symbols, marks, CACHE).expect("a vocabulary that is well formed");
    let form = match parts.normalizer {
        Some(Normalizer::Form(form, _)) => Some(form),
        _ => None,
    };
    let (mut raw_tokens, mut normal_tokens) = (Vec::new(), Vec::new());
    for (token, id) in parts.added.iter().zip(first as u32..) {
        let content = match form.filter(|_| token.normalized) {
            Some(form) => form.apply(token.content),
            None => token.content.into(),
        };
        let tokens = if token.normalized { &mut normal_tokens } else { &mut raw_tokens };
        tokens.push(AddedToken { content, id, lstrip: token.lstrip, rstrip: token.rstrip });
    }
    let Parts { pieces, normalizer, trim_offsets, .. } = parts;
    Engine::new(Program { pieces, normalizer, raw_tokens, normal_tokens, trim_offsets }, model)
}

fn split(levels: Vec<Automaton>, form: Option<Form>, added: &'static [Added], trims: bool, lacking: &[u8]) -> Engine {
    let mut tokens: Vec<String> =
        (0..=255).filter(|byte| !lacking.contains(byte)).map(|byte| alphabet(&[byte])).collect();
    tokens.extend(BYTE_MERGES.iter().map(|(left, right)| alphabet(&[*left, *right].concat())));
    let merges: Vec<[String; 2]> = BYTE_MERGES.iter().map(|(left, right)| [alphabet(left), alphabet(right)]).collect();
    let vocabulary = tokens.into_iter().zip(0..).map(|(token, id)| (token, json!(id))).collect();
    let normalizer = form.map(Normalizer::form);
    let parts = Parts { pieces: Pieces::Split(Levels::new(levels)), normalizer, added, trim_offsets: trims };
    engine(json!({"type": "BPE", "merges": merges}), vocabulary, Symbols::Bytes, false, parts)
}

fn joined(prepend: Prepend, marks: bool) -> Engine {
    let mut tokens: Vec<String> = (0..=255u8).map(|byte| format!("<{byte:#04X}>")).collect();
    tokens.extend(["▁", "a", "b", "x", "=", "é", "你", "好"].map(String::from));
    tokens.extend(CHARACTER_MERGES.iter().map(|(left, right)| format!("{left}{right}")));
    let vocabulary = tokens.into_iter().zip(0..).map(|(token, id)| (token, json!(id))).collect();
    let normalizer = marks.then_some(Normalizer::Mark);
    let parts = Parts { pieces: Pieces::Joined(prepend), normalizer, added: &IN_CHARACTERS, trim_offsets: false };
    let model = json!({"type": "BPE", "merges": CHARACTER_MERGES, "byte_fallback": true});
    engine(model, vocabulary, Symbols::Characters, marks, parts)
}

/// Every engine, with a name to be told by.
pub fn all() -> Vec<(&'static str, Engine)> {
    let (nfc, nfd, nfkc) = (Some(Form::Nfc), Some(Form::Nfd), Some(Form::Nfkc));
    vec![
        ("one level", split(vec![words()], None, &PLAIN, false, &[])),
        ("two levels", split(vec![groups(), words()], None, &STRIPPING, true, &[])),
        ("NFC", split(vec![groups(), words()], nfc, &COMPOSED, true, &[])),
        ("NFD", split(vec![words()], nfd, &COMPOSED, true, &[])),
        ("NFKC", split(vec![groups(), words()], nfkc, &COMPOSED, false, &[])),
        ("bytes behind characters", split(vec![groups(), words(), bytes()], nfc, &STRIPPING, false, &[])),
        ("gaps kept", split(vec![groups(), letters(true)], None, &PLAIN, true, &[])),
        ("gaps dropped", split(vec![groups(), letters(false)], nfc, &STRIPPING, false, &[])),
        ("bytes without tokens", split(vec![words()], nfc, &COMPOSED, false, &LACKING)),
        ("joined", joined(Prepend::Never, false)),
        ("joined with marks", joined(Prepend::Never, true)),
        ("marked at the start", joined(Prepend::First, true)),
        ("every section marked", joined(Prepend::Always, true)),
        ("every section marked once", joined(Prepend::AlwaysIfAbsent, true)),
    ]
}
