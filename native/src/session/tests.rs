//! Random edits of sessions of every kind of engine: afterwards a session is what a fresh one of its text would be.

mod edits;
mod engines;

use std::collections::HashSet;
use std::sync::OnceLock;

use super::*;
use crate::random::Random;
use edits::{boundary, edit, text, Edited, Source, FILLERS, OPENERS};

impl Source for Random {
    fn below(&mut self, limit: usize) -> usize {
        Random::below(self, limit)
    }
}

/// Every engine, with its name.
fn engines() -> &'static [(&'static str, Engine)] {
    static ENGINES: OnceLock<Vec<(&str, Engine)>> = OnceLock::new();
    ENGINES.get_or_init(engines::all)
}

/// What edits came to, so that nothing goes unseen.
#[derive(Debug, Default)]
struct Seen {
    kept_on_both_sides: usize,
    exceptions: usize,
    several_chunks: usize,
}

impl Seen {
    fn note(&mut self, edited: &Edited, change: Option<Change>) {
        self.kept_on_both_sides += usize::from(change.is_some_and(|c| c.keep_left > 0 && c.keep_right > 0));
        let entries = edited.session.entries();
        self.exceptions += usize::from(entries.iter().any(|entry| !entry.chunk.exceptions.is_empty()));
        self.several_chunks += usize::from(entries.len() > 1);
    }
}

#[test]
fn an_edited_session_is_what_a_fresh_one_is() {
    const ROUNDS: usize = 25;
    const EDITS: usize = 40;
    /// Bytes that texts may grow to before they are cut.
    const TEXT: usize = 600;
    let mut all_seen = Seen::default();
    for ((name, engine), seed) in engines().iter().zip(1..) {
        println!("{name}"); // shown with a failure
        let mut random = Random(seed);
        let mut seen = Seen::default();
        for _ in 0..ROUNDS {
            let mut forks = vec![Edited::new(engine, &text(&mut random, 30))];
            for _ in 0..EDITS {
                let (which, change) = edit(&mut random, &mut forks, TEXT);
                seen.note(&forks[which], change);
            }
        }
        assert!(seen.kept_on_both_sides > ROUNDS * EDITS / 20, "{name}: {seen:?}");
        all_seen.exceptions += seen.exceptions;
        all_seen.several_chunks += seen.several_chunks;
    }
    assert!(all_seen.exceptions > ROUNDS * EDITS, "{all_seen:?}");
    assert!(all_seen.several_chunks > ROUNDS * EDITS || TARGET > TEXT, "{all_seen:?}");
}

#[test]
fn edits_of_a_long_text_stay_near() {
    for ((name, engine), seed) in engines().iter().zip(1..) {
        let mut random = Random(seed);
        let mut long = String::new();
        while long.len() < 50_000 {
            long += &text(&mut random, 60);
            long += "\n(a) line of words to come back to: ab ab\n";
        }
        let mut edited = Edited::new(engine, &long);
        assert!(edited.session.entries().len() > 2, "{name}");
        let mut scanned = 0;
        for _ in 0..6 {
            let at = boundary(&mut random, edited.text());
            let change = edited.splice(at, at, &text(&mut random, 2));
            scanned += change.map_or(0, |change| change.scanned_chars);
        }
        assert!(scanned < 6 * 10_000, "{name}: {scanned}");
    }
}

#[test]
fn forks_share_what_neither_changed() {
    let (_, engine) = &engines()[0];
    let session = Session::new(engine, &"some words of a text\n".repeat(4000), &mut || false).unwrap();
    let mut fork = session.clone();
    let shared = |fork: &Session| {
        let of_fork: HashSet<_> = fork.entries().iter().map(|entry| Arc::as_ptr(&entry.chunk)).collect();
        session.entries().iter().filter(|entry| of_fork.contains(&Arc::as_ptr(&entry.chunk))).count()
    };
    let chunks = session.entries().len();
    assert_eq!(shared(&fork), chunks);
    fork.splice(engine, (40_000, 40_000), "in the middle", &mut || false).unwrap();
    assert!((chunks - 3..chunks).contains(&shared(&fork)));
}

#[test]
fn an_interrupted_edit_changes_nothing() {
    // More pieces than there are between two looks at whether to stop.
    let many = "a 1\n".repeat(20_000);
    for (name, engine) in engines() {
        assert!(Session::new(engine, &many, &mut || true).is_err(), "{name}");
        let mut edited = Edited::new(engine, "some text, soon interrupted");
        assert!(edited.session.splice(engine, (5, 7), &many, &mut || true).is_err(), "{name}");
        assert!(edited.is_untouched(), "{name}");
        edited.splice(5, 7, "more");
    }
}

#[test]
fn tokens_that_are_kept_on_the_left_keep_their_spans() {
    // The last token swallows white space, which its span shows, and lies in another chunk than the edit; what is inserted reaches as far.
    let engine = &engines().iter().find(|(name, _)| *name == "bytes behind characters").unwrap().1;
    let many = 2 * TARGET / "<r>".len();
    for inserted in many - 2..many + 3 {
        let mut edited = Edited::new(engine, &("<r>".repeat(many) + "  "));
        edited.splice(0, 0, &"<r>".repeat(inserted));
    }
}

#[test]
fn a_mark_that_takes_no_text_may_depend_on_text_far_ahead() {
    // The mark in front is a piece of its own. An added token behind it swallows white space, whose end it reads.
    let text = format!("x<r>{}x", " ".repeat(2 * SLACK));
    for (_, engine) in engines() {
        for at in 4..text.len() {
            Edited::new(engine, &text).splice(at, at, "y");
        }
    }
}

#[test]
fn what_an_upper_level_read_far_ahead_holds_after_pieces_that_read_little() {
    // The bracket is closed until the edit: the space before it is a piece of its own only as long as it is.
    let text = format!("2 ({})", "1234567".repeat(2 * SLACK / 7));
    for (_, engine) in engines() {
        for removed in 1..SLACK {
            let start = text.len() - removed;
            Edited::new(engine, &text).splice(start, text.len(), "");
        }
    }
}

#[test]
fn what_stays_open_for_long_is_closed_at_last() {
    // An attempt reads up to the end of the text, or up to where it fails; what decides it moves, and then changes.
    for (name, engine) in engines() {
        println!("{name}"); // shown with a failure
        for (opener, filler) in OPENERS.iter().flat_map(|opener| FILLERS.map(|filler| (opener, filler))) {
            for stop in ["", "(", "x 12 "] {
                let text = "ab 12 ".repeat(30) + opener + &filler.repeat(90) + stop;
                for closer in [")", ">", "x"] {
                    let mut edited = Edited::new(engine, &text);
                    edited.splice(0, 90, "");
                    let end = edited.text().len();
                    edited.splice(end - stop.len(), end, closer);
                }
            }
        }
    }
}
