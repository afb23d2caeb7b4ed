//! Edits of sessions, each compared with a session that is made anew of the same text; for tests and the fuzzer.

use crate::engine::Engine;
use crate::session::chunk::Exception;
use crate::session::{Change, Session};

/// Sessions that are edited side by side.
const FORKS_MAX: usize = 3;

/// Where the choices come from: a generator, or the fuzzer's bytes.
pub trait Source {
    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize;
}

/// Stretches that texts are made of: what the patterns, normal forms, vocabularies and added tokens look at, whole and
/// in parts.
#[rustfmt::skip]
const PARTS: [&str; 75] = [
    "a", "b", "ab", "abab", " ab", "x", "xx", "q", "word", " words and more words ", " ", "  ", "   ", "\n", "\n\n",
    " \n", "\r\n", "\t", "\u{3000}", "\u{85}", "\u{a0}", "1", "12", "123", "1234567", "(", ")", "()", "(a b)", "=",
    "==", ">", "=>", "==========", "-", "...", "'s", "\u{e9}", "e\u{301}", "e", "\u{301}", "\u{323}\u{301}",
    "\u{e9}\u{e9}", "\u{1100}", "\u{1161}\u{11a8}", "\u{ac00}", "\u{11a8}", "\u{fb01}", "fi", "\u{bd}", "\u{212b}",
    "\u{304b}\u{3099}", "\u{3099}", "你", "你好", "\u{20ac}", "\u{1f600}", "\u{2581}", "\u{2581}a", "\0", "<s>", "<s",
    "s>", "<", "<l>", "<r>", "<both>", "<bo", "th>", "<a rather long token>", "<a rather long tok", "en>", "ab<",
    "\u{fdfa}", "\u{1d15e}",
];

/// What opens and closes something, or breaks a run: what an attempt that began far before it stops at.
const KEYS: [&str; 10] = [")", ")", ">", "(", "x", " ", "\n", "\u{301}", "s>", "<r>"];
/// What opens something that may stay open for long, and what it is then filled with.
pub const OPENERS: [&str; 6] = ["(", "=", "\n", "<r>", "<a rather long token>", "e"];
pub const FILLERS: [&str; 5] = [" ab", "=", " ", "\u{301}", "1"];
/// Neighbours among the parts, which a text is mostly made of: of few, so that what belongs together meets.
const THEME: usize = 5;

/// A text of at most `parts` stretches, some of them repeated.
pub fn text(source: &mut impl Source, parts: usize) -> String {
    let theme = source.below(PARTS.len());
    (0..source.below(parts + 1))
        .map(|_| {
            let part = match source.below(16) {
                0 => {
                    let opener = OPENERS[source.below(OPENERS.len())];
                    return opener.to_owned() + &FILLERS[source.below(FILLERS.len())].repeat(source.below(100));
                }
                1..4 => source.below(PARTS.len()),
                _ => (theme + source.below(THEME)) % PARTS.len(),
            };
            let times = match source.below(10) {
                0 => 1 + source.below(60),
                1 => 1 + source.below(9),
                _ => 1,
            };
            PARTS[part].repeat(times)
        })
        .collect()
}

/// All that can be read of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    text: String,
    ids: Vec<u32>,
    spans: Vec<[u32; 2]>,
    /// By token: whether a scan may restart there.
    restarts: Vec<bool>,
}

impl Reading {
    /// In what the two differ, and at which token.
    fn difference(&self, other: &Self) -> Option<String> {
        fn first<T: PartialEq>(a: &[T], b: &[T]) -> usize {
            a.iter().zip(b).take_while(|(a, b)| a == b).count()
        }
        match () {
            _ if self.text != other.text => Some(format!("text {:?}", self.text)),
            _ if self.ids != other.ids => Some(format!("ids from {} on", first(&self.ids, &other.ids))),
            _ if self.spans != other.spans => Some(format!("spans from {} on", first(&self.spans, &other.spans))),
            _ if self.restarts != other.restarts => {
                Some(format!("restarts from {} on", first(&self.restarts, &other.restarts)))
            }
            _ => None,
        }
    }
}

fn read(engine: &Engine, session: &Session) -> Reading {
    let (mut bytes, mut byte, mut token) = (Vec::new(), 0, 0);
    session.copy_text(0, session.bytes(), &mut bytes);
    let mut restarts = Vec::new();
    for entry in session.entries() {
        let chunk = &entry.chunk;
        assert_eq!((entry.byte, entry.token), (byte, token));
        assert!(!chunk.text.is_empty());
        assert_eq!(chunk.restarts.count(), chunk.ids.len());
        assert!(chunk.exceptions.is_sorted_by_key(|exception| exception.end));
        restarts.extend((0..chunk.ids.len()).map(|token| chunk.restarts.get(token)));
        byte += chunk.text.len();
        token += chunk.ids.len();
    }
    assert_eq!((session.bytes(), session.tokens()), (byte, token));
    let ids: Vec<u32> = session.ids_from(0).collect();
    for (start, end) in [(0, token), (token / 3, token / 2), (token / 2, token / 2), (token, token + 1)] {
        assert_eq!(session.ids(start, end), ids[start..end.min(token)]);
    }
    let packed = session.restarts();
    assert_eq!(packed.len(), token.div_ceil(8));
    assert!((0..8 * packed.len()).all(|at| (packed[at / 8] >> (at % 8) & 1 == 1) == (at < token && restarts[at])));
    Reading {
        text: String::from_utf8(bytes).expect("chunks are cut at character boundaries"),
        ids,
        spans: session.spans(engine, 0, session.tokens()),
        restarts,
    }
}

/// What is read of a session made anew.
fn fresh(engine: &Engine, text: &str) -> Reading {
    let session = Session::new(engine, text, &mut || false).expect("nobody interrupts");
    let reading = read(engine, &session);
    assert_eq!(reading.text, text);
    assert_eq!(reading.ids, engine.encode(text, &mut || false).expect("nobody interrupts"));
    reading
}

/// A session, and what is read of it.
#[derive(Clone)]
pub struct Edited<'a> {
    engine: &'a Engine,
    pub session: Session,
    reading: Reading,
}

impl<'a> Edited<'a> {
    pub fn new(engine: &'a Engine, text: &str) -> Self {
        let session = Session::new(engine, text, &mut || false).expect("nobody interrupts");
        let reading = fresh(engine, text);
        assert_eq!(read(engine, &session), reading);
        Self { engine, session, reading }
    }

    pub fn text(&self) -> &str {
        &self.reading.text
    }

    /// Whether the session reads as it did after its last edit.
    pub fn is_untouched(&self) -> bool {
        read(self.engine, &self.session) == self.reading
    }

    /// Edit, and compare. The positions are character boundaries.
    pub fn splice(&mut self, start: usize, end: usize, new: &str) -> Option<Change> {
        let mut text = self.text().to_owned();
        text.replace_range(start..end, new);
        let edited = self.session.splice(self.engine, (start, end), new, &mut || false);
        let change = edited.expect("nobody interrupts");
        let after = fresh(self.engine, &text);
        let before = std::mem::replace(&mut self.reading, after);
        let after = &self.reading;
        let edited = read(self.engine, &self.session);
        let differs = edited.difference(after);
        assert!(differs.is_none(), "{}: [{start}, {end}) of {:?} became {new:?}", differs.unwrap(), before.text);
        match &change {
            None => assert_eq!(before.text, after.text),
            Some(change) => leads(change, &before, after, (start, end, new.len())),
        }
        change
    }

    /// Make `new` the whole text by an edit of what differs.
    pub fn update(&mut self, new: &str) {
        let text = self.text().to_owned();
        let left = self.session.common_prefix(new.as_bytes());
        let right = self.session.common_suffix(new.as_bytes(), left);
        let pairs = text.char_indices().zip(new.chars());
        let same = pairs.take_while(|((_, old), new)| old == new).last();
        assert_eq!(left, same.map_or(0, |((at, char), _)| at + char.len_utf8()));
        let backward = text[left..].chars().rev().zip(new[left..].chars().rev());
        let same = backward.take_while(|(old, new)| old == new);
        assert_eq!(right, same.map(|(char, _)| char.len_utf8()).sum::<usize>());
        self.splice(left, text.len() - right, &new[left..new.len() - right]);
    }
}

/// The change is what leads from one reading to the other; bytes [start, end) gave way to `new` bytes.
fn leads(change: &Change, before: &Reading, after: &Reading, (start, end, new): (usize, usize, usize)) {
    let (left, right) = (change.keep_left, before.ids.len() - change.keep_right);
    let patched = [&before.ids[..left], &change.ids, &before.ids[right..]].concat();
    assert_eq!(patched, after.ids);
    let same = before.ids.iter().zip(&after.ids).take_while(|(old, new)| old == new).count();
    assert_eq!(change.first_changed, same);
    assert_eq!(before.spans[..left], after.spans[..left]);
    let moved = |at: u32| (at as usize + new - (end - start)) as u32;
    let kept = before.spans[right..].iter().map(|span| span.map(moved));
    assert!(kept.eq(after.spans[left + change.ids.len()..].iter().copied()));
    let scanned = &after.text[start - change.back..start + new + change.forward];
    assert_eq!(change.scanned_chars, scanned.chars().count());
}

/// A character boundary of `text`, any of them.
pub fn boundary(source: &mut impl Source, text: &str) -> usize {
    boundary_at(text, source.below(text.len() + 1))
}

fn boundary_at(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).expect("a text begins at a boundary")
}

/// Where to edit: anywhere, at the end, or around the last of what some piece depends on.
fn place(source: &mut impl Source, edited: &Edited) -> usize {
    let text = edited.text();
    match source.below(6) {
        0 => text.len(),
        1 | 2 => {
            let reaches = edited.session.entries().iter().flat_map(|entry| {
                let reach = |exception: &Exception| entry.byte + exception.reach as usize;
                entry.chunk.exceptions.iter().map(reach)
            });
            let reaches: Vec<usize> = reaches.collect();
            match reaches.len() {
                0 => boundary(source, text),
                some => boundary_at(text, (reaches[source.below(some)] - source.below(4)).min(text.len())),
            }
        }
        _ => boundary(source, text),
    }
}

/// One edit of one of some sessions of the same engine, none of which holds more than about `bytes_max` bytes; the
/// others stay as they are. Gives which one, and what changed.
pub fn edit(source: &mut impl Source, forks: &mut Vec<Edited>, bytes_max: usize) -> (usize, Option<Change>) {
    let which = source.below(forks.len());
    let edited = &mut forks[which];
    let old = edited.text().to_owned();
    let at = place(source, edited);
    let kind = if old.len() > bytes_max { 0 } else { source.below(13) };
    let change = match kind {
        0 => edited.splice(at, old.len(), ""),
        1 | 2 => edited.splice(old.len(), old.len(), &text(source, 3)),
        3 => {
            let from = boundary(source, &old);
            edited.update(&[&old[..at], &text(source, 3), &old[from..]].concat());
            None
        }
        4 => {
            edited.update(&text(source, 30));
            None
        }
        5..=7 => {
            let width = old[at..].chars().next().filter(|_| source.below(2) == 0).map_or(0, char::len_utf8);
            edited.splice(at, at + width, KEYS[source.below(KEYS.len())])
        }
        8 => {
            let end = boundary(source, &old);
            edited.splice(at.min(end), end.max(at), "")
        }
        _ => {
            let removed = old[at..].chars().take(source.below(4) * source.below(6));
            let end = at + removed.map(char::len_utf8).sum::<usize>();
            edited.splice(at, end, &text(source, 2))
        }
    };
    for (i, fork) in forks.iter().enumerate().filter(|(i, _)| *i != which) {
        assert!(fork.is_untouched(), "an edit of session {which} changed session {i}");
    }
    if source.below(8) == 0 {
        let fork = forks[which].clone();
        match forks.len() {
            FORKS_MAX => *forks.last_mut().expect("there are some") = fork,
            _ => forks.push(fork),
        }
    }
    (which.min(forks.len() - 1), change)
}
