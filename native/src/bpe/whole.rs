//! Which tokens are what merging makes of their own text. Only these can a piece be without being merged.
//!
//! Merging the text of every token would tell, and takes long. Most tokens are proved from those they are made of.
//!
//! Let a rule make t of a and b, and let merging make a and b of their own texts. Merging the text of t does the merges
//! of a and those of b, each in its own order, and then makes t, unless a merge across the boundary comes before. On the
//! left of such a merge is a token x, at that time the last one in the text of a, and on its right a token y, the first
//! one in the text of b. The tokens x are a, its right side, the right side of that, and so on. Where x is the right
//! side of z, and is the last one, there is a merge in the text of z that can be done: the one that makes z, or one in
//! its left side. Its rank is at most that of z, as rules are taken here in the order of their ranks and only after
//! those of their sides. So the merge of x and y cannot come first if its rank is above that of z; likewise with y and b.

use super::merge::Scratch;
use super::merges::{rank, Merges, Rule, NO_MERGE};
use super::symbols::Alphabet;
use super::texts::Texts;
use super::NONE;

/// Tokens at a boundary that are looked at; with more of them a token is merged instead.
const DEPTH: usize = 32;

/// The last merge in the text of a token; its rank is the largest there. The sides of symbols are `NONE`.
#[derive(Clone, Copy)]
struct Made {
    left: u32,
    right: u32,
    rank: u32,
}

const SYMBOL: Made = Made { left: NONE, right: NONE, rank: 0 };

/// What is known of a token.
#[derive(Clone, Copy)]
enum Known {
    /// No merge makes it, and merging does not start from it.
    NotMade,
    Unproved,
    Proved(Made),
}

/// The tokens whose text merges to something else, with their texts. `ids`: how many ids there are.
pub fn apart<'a>(texts: &'a Texts, alphabet: &Alphabet, merges: &Merges, ids: usize) -> Vec<(&'a [u8], u32)> {
    let known = prove(alphabet, merges, ids);
    let mut scratch = Scratch::default();
    let mut is_apart = |text: &[u8], id: u32| match known[id as usize] {
        Known::NotMade => true,
        Known::Proved(_) => false,
        Known::Unproved => {
            alphabet.encode(text, merges, &mut scratch);
            scratch.tokens != [id]
        }
    };
    texts.iter().filter(|&(text, id)| is_apart(text, id)).collect()
}

fn prove(alphabet: &Alphabet, merges: &Merges, ids: usize) -> Vec<Known> {
    let mut known = vec![Known::NotMade; ids];
    for id in alphabet.tokens() {
        known[id as usize] = Known::Proved(SYMBOL);
    }
    for (rank, rule) in merges.rules() {
        let product = rule.product as usize;
        if let Known::Proved(_) = known[product] {
            continue;
        }
        known[product] = match prove_rule(&known, merges, rank, rule) {
            Some(made) => Known::Proved(made),
            None => Known::Unproved,
        };
    }
    known
}

fn prove_rule(known: &[Known], merges: &Merges, rank: u32, rule: Rule) -> Option<Made> {
    let last = Edge::new(known, rule.left, |made| made.right)?;
    let first = Edge::new(known, rule.right, |made| made.left)?;
    let separate = first.tokens().all(|y| last.tokens().all(|x| stays_apart(merges, x, y)));
    separate.then_some(Made { left: rule.left, right: rule.right, rank })
}

/// A token next to a boundary, with a bound of the rank that is next on its side, if its side is not complete.
type Bounded = (u32, Option<u32>);

/// Whether the merge across the boundary does not come first while both tokens are there.
fn stays_apart(merges: &Merges, (x, x_bound): Bounded, (y, y_bound): Bounded) -> bool {
    if x_bound.is_none() && y_bound.is_none() {
        return true; // both sides are complete: this is the merge that makes the token
    }
    let merge = merges.get(x, y);
    let above = |bound: Option<u32>| bound.is_some_and(|bound| rank(merge) > bound);
    merge == NO_MERGE || above(x_bound) || above(y_bound)
}

/// The tokens that are next to a boundary one after the other, the complete one first.
struct Edge {
    tokens: [Bounded; DEPTH],
    count: usize,
}

impl Edge {
    /// `near`: the side of a token that is next to the boundary. None if a token is not proved.
    fn new(known: &[Known], token: u32, near: impl Fn(&Made) -> u32) -> Option<Edge> {
        let mut edge = Edge { tokens: [(token, None); DEPTH], count: 1 };
        let mut at = token;
        while let Known::Proved(made) = known[at as usize] {
            at = near(&made);
            if at == NONE {
                return Some(edge);
            }
            *edge.tokens.get_mut(edge.count)? = (at, Some(made.rank));
            edge.count += 1;
        }
        None
    }

    fn tokens(&self) -> impl Iterator<Item = Bounded> + '_ {
        self.tokens[..self.count].iter().copied()
    }
}
