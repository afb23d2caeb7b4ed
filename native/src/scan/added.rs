//! Added tokens: found in the text before anything else, leftmost and longest first (rule R5 of docs/exactness.md).
//!
//! The search is an attempt at every character that walks a trie until no added token can go on. So it has a reach
//! like any other attempt, and "some token could still begin here" is nothing but a reach beyond the edit.

use super::reach::LongAttempts;
use super::utf8;

/// An added token as tokenizer.json has it; `content` is normalized already where it is matched so.
#[derive(Clone, Debug)]
pub struct AddedToken {
    pub content: String,
    pub id: u32,
    /// White space to its left belongs to it.
    pub lstrip: bool,
    /// White space to its right belongs to it.
    pub rstrip: bool,
}

#[derive(Default, Clone)]
struct Node {
    edges: Vec<(u8, u32)>,
    token: Option<u32>,
}

/// An occurrence: the white space that it swallows included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub start: usize,
    pub end: usize,
    pub id: u32,
    /// Position after the last byte that decided on it.
    pub reach: usize,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Token(Occurrence),
    /// No token begins before the end of the text.
    Nothing,
    /// An attempt at this position read the end of what is in sight, and the text goes on.
    Open(usize),
}

pub struct AddedTokens {
    nodes: Vec<Node>,
    tokens: Vec<AddedToken>,
    first: [bool; 256],
    /// The first bytes, when they are few enough for a vectorized search.
    needles: Vec<u8>,
    strips_left: bool,
}

impl AddedTokens {
    pub fn new(tokens: Vec<AddedToken>) -> Self {
        let mut nodes = vec![Node::default()];
        for (index, token) in tokens.iter().enumerate() {
            let mut node = 0;
            for &byte in token.content.as_bytes() {
                node = match nodes[node].edges.iter().find(|edge| edge.0 == byte) {
                    Some(&(_, next)) => next as usize,
                    None => {
                        nodes.push(Node::default());
                        let next = nodes.len() - 1;
                        nodes[node].edges.push((byte, next as u32));
                        next
                    }
                };
            }
            if node != 0 {
                nodes[node].token.get_or_insert(index as u32);
            }
        }
        let mut first = [false; 256];
        for &(byte, _) in &nodes[0].edges {
            first[byte as usize] = true;
        }
        let strips_left = tokens.iter().any(|token| token.lstrip);
        let mut needles: Vec<u8> = nodes[0].edges.iter().map(|edge| edge.0).collect();
        if needles.len() > 3 || strips_left {
            needles.clear();
        }
        Self { nodes, tokens, first, needles, strips_left }
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The next occurrence in text[from..]. `at_end`: what an attempt that read the end of the text has reached; `None`
    /// when the text goes on beyond what is in sight.
    pub fn next(&self, text: &[u8], from: usize, at_end: Option<usize>, longs: &mut LongAttempts) -> Found {
        let mut at = from;
        while let Some(start) = self.candidate(text, at) {
            // White space before a token that strips it is part of the attempt.
            let walk_start = if self.strips_left { white_end(text, start) } else { start };
            let (token, reach) = self.walk(text, walk_start);
            let Some(reach) = reach.or(at_end) else { return Found::Open(start) };
            longs.record(start, reach);
            let Some(token) = token else {
                longs.record(walk_start, reach);
                at = walk_start + text.get(walk_start).map_or(0, |&byte| utf8::width(byte));
                continue;
            };
            let token = &self.tokens[token as usize];
            let end = walk_start + token.content.len();
            let begin = if token.lstrip { start } else { walk_start };
            if !token.rstrip {
                return Found::Token(Occurrence { start: begin, end, id: token.id, reach });
            }
            let end = white_end(text, end);
            let reach = if end < text.len() { Some(reach.max(end + 1)) } else { at_end };
            let Some(reach) = reach else { return Found::Open(start) };
            longs.record(start, reach);
            return Found::Token(Occurrence { start: begin, end, id: token.id, reach });
        }
        Found::Nothing
    }

    /// The next position at which an attempt reads more than one character.
    fn candidate(&self, text: &[u8], from: usize) -> Option<usize> {
        let rest = text.get(from..)?;
        let found = match *self.needles.as_slice() {
            [a] => memchr::memchr(a, rest),
            [a, b] => memchr::memchr2(a, b, rest),
            [a, b, c] => memchr::memchr3(a, b, c, rest),
            _ if self.tokens.is_empty() => None,
            _ => rest.iter().enumerate().position(|(i, &byte)| {
                self.first[byte as usize]
                    || (self.strips_left && byte_may_be_white(byte) && white_end(text, from + i) > from + i)
            }),
        };
        Some(from + found?)
    }

    /// The longest token at `at`, and the position after the last byte read; `None` when the end of the text was read.
    fn walk(&self, text: &[u8], at: usize) -> (Option<u32>, Option<usize>) {
        let mut node = &self.nodes[0];
        let mut longest = None;
        for (i, &byte) in text[at..].iter().enumerate() {
            let Some(&(_, next)) = node.edges.iter().find(|edge| edge.0 == byte) else {
                return (longest, Some(at + i + 1));
            };
            node = &self.nodes[next as usize];
            longest = node.token.or(longest);
            if node.edges.is_empty() {
                return (longest, Some(at + i + 1));
            }
        }
        (longest, None)
    }
}

fn byte_may_be_white(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xc2 | 0xe1..=0xe3)
}

/// Where the run of white space that begins at `at`, if one does, ends.
fn white_end(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && byte_may_be_white(text[at]) {
        let (point, width) = utf8::decode(text, at);
        if !char::from_u32(point).is_some_and(char::is_whitespace) {
            break;
        }
        at += width;
    }
    at
}
