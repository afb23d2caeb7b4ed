//! The parts of a tokenizer.json that a BPE model needs, read without copying its strings.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::Deserialize as DeriveDeserialize;

/// What is read of a tokenizer.json.
#[derive(Debug, DeriveDeserialize)]
pub struct Document<'a> {
    #[serde(borrow)]
    pub model: Model<'a>,
    #[serde(borrow, default)]
    pub added_tokens: Option<Vec<Added<'a>>>,
}

/// An added token: its content and its id.
#[derive(Debug, DeriveDeserialize)]
pub struct Added<'a> {
    #[serde(borrow)]
    pub content: Text<'a>,
    pub id: u32,
}

/// The `model` of a tokenizer.json.
#[derive(Debug, DeriveDeserialize)]
pub struct Model<'a> {
    #[serde(borrow, rename = "type", default)]
    pub kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub vocab: Vocabulary<'a>,
    #[serde(borrow)]
    pub merges: Vec<Merge<'a>>,
    #[serde(borrow, default)]
    pub unk_token: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub continuing_subword_prefix: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub end_of_word_suffix: Option<Text<'a>>,
    #[serde(default)]
    pub dropout: Option<f64>,
    #[serde(default)]
    pub byte_fallback: Option<bool>,
    #[serde(default)]
    pub ignore_merges: Option<bool>,
}

/// A string, borrowed from the document unless it holds escapes.
#[derive(Debug)]
pub struct Text<'a>(pub Cow<'a, str>);

/// The entries of `vocab` in the order of the file; a key may come twice.
#[derive(Debug)]
pub struct Vocabulary<'a>(pub Vec<(Text<'a>, u32)>);

/// The two sides of a merge; both are empty for a `#version` line, which is no merge.
#[derive(Debug, PartialEq)]
pub struct Merge<'a>(pub Cow<'a, str>, pub Cow<'a, str>);

/// Reads the document.
///
/// # Errors
/// Broken JSON, or a model without the vocabulary and merges of BPE.
pub fn read(json: &[u8]) -> Result<Document<'_>, String> {
    let json = std::str::from_utf8(json).map_err(|error| format!("tokenizer.json: {error}"))?;
    serde_json::from_str(json).map_err(|error| format!("tokenizer.json: {error}"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabularyVisitor;
        impl<'de> Visitor<'de> for VocabularyVisitor {
            type Value = Vocabulary<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map of strings to ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocabulary(entries))
            }
        }
        deserializer.deserialize_map(VocabularyVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge, \"left right\" or [\"left\", \"right\"]")
            }
            fn visit_borrowed_str<E: Error>(self, line: &'de str) -> Result<Self::Value, E> {
                sides(line).map(|(left, right)| Merge(Cow::Borrowed(left), Cow::Borrowed(right)))
            }
            fn visit_str<E: Error>(self, line: &str) -> Result<Self::Value, E> {
                sides(line).map(|(left, right)| Merge(Cow::Owned(left.into()), Cow::Owned(right.into())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let sides: (Option<Text>, Option<Text>) = (seq.next_element()?, seq.next_element()?);
                match (sides, seq.next_element::<IgnoredAny>()?) {
                    ((Some(left), Some(right)), None) => Ok(Merge(left.0, right.0)),
                    _ => Err(A::Error::custom("a merge does not have two sides")),
                }
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

/// The sides of a merge written as one line, which the reference reads only with exactly one space.
fn sides<E: Error>(line: &str) -> Result<(&str, &str), E> {
    if line.starts_with("#version") {
        return Ok(("", ""));
    }
    match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok((left, right)),
        _ => Err(E::custom(format!("the merge {line:?} does not have two sides"))),
    }
}
