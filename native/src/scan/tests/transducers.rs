//! Transducers of random levels against attempt after attempt at their automata.

use super::{text, Table, ACCEPT, CODE_POINTS};
use crate::random::Random;
use crate::scan::automaton::Automaton;
use crate::scan::transducer::{compile, Block, Transducer, BLOCK_LEAST, INSIDE};
use crate::scan::utf8;

/// A piece: where it ends, and whether a scan may restart there.
pub type Piece = (usize, bool);

/// The pieces of `text[lo..hi)`, as `levels` make them one within the other. `inside`: whether it is a match.
fn split(levels: &[Automaton], text: &[u8], (lo, hi): (usize, usize), inside: bool, pieces: &mut Vec<Piece>) {
    let Some((level, below)) = levels.split_first() else { return pieces.push((hi, !inside)) };
    let (mut at, mut gap) = (lo, lo);
    while at < hi {
        let Some(end) = level.attempt(&text[..hi], at).end else {
            at += level.unit_width(text[at]);
            continue;
        };
        if gap < at {
            split(below, text, (gap, at), inside, pieces);
        }
        split(below, text, (at, end), inside || !below.is_empty(), pieces);
        if let Some(last) = pieces.last_mut() {
            last.1 = !inside;
        }
        (at, gap) = (end, end);
    }
    if gap < hi {
        split(below, text, (gap, hi), inside, pieces);
    }
}

pub fn plain(levels: &[Automaton], text: &[u8], lo: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    split(levels, text, (lo, text.len()), false, &mut pieces);
    pieces
}

/// The pieces that a block finds from `lo` on, each with the end of the unit that settled it.
fn read(transducer: &Transducer, block: &mut Block, text: &[u8], lo: usize) -> Vec<(Piece, usize)> {
    transducer.read(block, &text[lo..], true);
    let mut found = Vec::new();
    for chain in 0..Block::CHAINS {
        let (pieces, goes_on) = block.pieces(chain);
        let base = lo + pieces.base;
        found.extend(pieces.ends.iter().enumerate().map(|(n, &end)| {
            let read = base + usize::from(pieces.reads[n]);
            ((base + usize::from(end & !INSIDE), end & INSIDE == 0), read + utf8::width(text[read]))
        }));
        if !goes_on {
            break;
        }
    }
    found
}

/// Reads all of a text, block after block, and where none gets on, goes on behind the next piece. Gives how many pieces
/// blocks found.
fn check(random: &mut Random, levels: &[Automaton], transducer: &Transducer, text: &[u8]) -> usize {
    let expected = plain(levels, text, 0);
    let (mut at, mut next, mut count) = (0, 0, 0);
    let mut block = Block::default();
    while text.len() - at >= BLOCK_LEAST {
        let found = read(transducer, &mut block, text, at);
        let ends: Vec<Piece> = found.iter().map(|piece| piece.0).collect();
        assert_eq!(ends, expected[next..next + ends.len()], "{:?} from {at}", utf8::as_str(text));
        assert!(ends.last().is_none_or(|last| last.1));
        for _ in 0..3 {
            // Pieces that were settled stay what they are when all text behind is another.
            let Some(&(piece, read)) = found.get(random.below(found.len() + 1)) else { continue };
            let other = [&text[..read], super::text(random).as_bytes()].concat();
            assert!(plain(levels, &other, at).contains(&piece), "{:?} {piece:?} {read}", utf8::as_str(text));
        }
        count += ends.len();
        next += ends.len();
        if ends.is_empty() {
            let restart = expected[next..].iter().position(|piece| piece.1).expect("the end of the text");
            next += restart + 1;
        }
        at = expected[next - 1].0;
        if random.below(4) == 0 {
            block.restart();
        }
    }
    count
}

/// A level whose matches hold something, with more or less text that no match covers, and more or less certain matches.
fn level(random: &mut Random) -> Automaton {
    let mut table = Table::random(random, CODE_POINTS);
    let states = table.entries.len() / table.columns;
    let (start, others) = table.entries[table.columns..].split_at_mut(table.columns);
    let (gaps, failures) = (random.below(6), *random.pick(&[0, 0, 1, 4, 7]));
    for entry in start {
        let is_gap = states < 3 || random.below(8) < gaps;
        *entry = if is_gap { 0 } else { 2 + random.below(states - 2) as u16 };
    }
    for (at, entry) in others.iter_mut().enumerate() {
        let may_end = *entry & !ACCEPT <= 1 || at % table.columns == table.columns - 1;
        if may_end && random.below(8) >= failures {
            *entry = ACCEPT;
        }
    }
    table.automaton()
}

#[test]
fn blocks_have_the_pieces_of_attempt_after_attempt() {
    let mut random = Random(7);
    let mut found = [0; 3];
    for round in 0..240 {
        let levels: Vec<Automaton> = (0..=round % 3).map(|_| level(&mut random)).collect();
        let Some(transducer) = compile(&levels) else { continue };
        for _ in 0..3 {
            let text: String = (0..1 + random.below(60)).map(|_| text(&mut random)).collect();
            found[round % 3] += check(&mut random, &levels, &transducer, text.as_bytes());
        }
    }
    assert!(found.iter().all(|&pieces| pieces > 4_000), "{found:?}");
}
