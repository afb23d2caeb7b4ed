//! Any edits of any texts, by any of some small engines: a session is what a fresh one of the same text would be.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
// Under the names that the engine's own tests know them by.
use toksplice_native::{bpe, engine, scan, session};

#[path = "../../src/session/tests/edits.rs"]
mod edits;
#[path = "../../src/session/tests/engines.rs"]
mod engines;

use edits::{edit, text, Edited, Source};

/// Bytes that texts may grow to before they are cut.
const TEXT: usize = 600;
/// An edit takes the time of a whole text.
const EDITS_MAX: usize = 48;

/// The fuzzer's bytes, one for each choice among no more than 256, else two; zeros when they are used up.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let (used, rest) = self.0.split_at(self.0.len().min(if limit <= 256 { 1 } else { 2 }));
        self.0 = rest;
        used.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) % limit
    }
}

static ENGINES: OnceLock<Vec<(&str, engine::Engine)>> = OnceLock::new();

// Made before the clock starts: instrumented, that takes longer than a short run.
fuzz_target!(init: { ENGINES.get_or_init(engines::all); }, |data: &[u8]| {
    let engines = ENGINES.get_or_init(engines::all);
    let mut source = Bytes(data);
    let (_, engine) = &engines[source.below(engines.len())];
    let mut forks = vec![Edited::new(engine, &text(&mut source, 30))];
    for _ in 0..EDITS_MAX {
        if source.0.is_empty() {
            break;
        }
        edit(&mut source, &mut forks, TEXT);
    }
});
