//! The exact tokenization engine of TokSplice: see docs/architecture.md for the whole and docs/exactness.md for why
//! its answers are those of the reference.

pub mod bpe;
pub mod engine;
pub mod interrupt;
#[cfg(feature = "python")]
mod python;
#[cfg(test)]
mod random;
pub mod scan;
pub mod session;
pub mod utf32;
