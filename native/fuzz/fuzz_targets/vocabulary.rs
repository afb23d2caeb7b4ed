//! Any bytes as a tokenizer.json: loading gives a vocabulary or an error, and a vocabulary that was loaded encodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toksplice_native::bpe::{Bpe, Symbols};

/// Entries of the piece cache; few, so that they are replaced.
const CACHE: usize = 16;

fuzz_target!(|json: &[u8]| {
    for (symbols, mark_spaces) in [(Symbols::Bytes, false), (Symbols::Characters, true)] {
        let Ok(bpe) = Bpe::from_json(json, symbols, mark_spaces, CACHE) else {
            continue;
        };
        let (mut cache, mut ids) = (bpe.new_cache(), Vec::new());
        for piece in ["a", " the", "\u{2581}x", "\u{1F600}\0"] {
            bpe.encode(&mut cache, piece.as_bytes(), &mut ids);
        }
        for id in ids {
            let _ = (bpe.token_len(id), bpe.trim(id));
        }
    }
});
