//! A transducer read class after class, where every position that it sets and settles is told.

use super::super::transducer::{Step, Transducer};

pub struct Machine<'a> {
    transducer: &'a Transducer,
}

/// What a transducer is in the middle of.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State<T> {
    row: u32,
    /// The ends that are not settled, and whether they lie inside a match.
    pub pending: [Option<(T, bool)>; Transducer::PENDING],
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self { row: Transducer::START, pending: [const { None }; Transducer::PENDING] }
    }
}

/// What a step settled, and whether the machine goes on and none of these ends lies inside a match.
pub struct Settled<T> {
    pub ends: Vec<T>,
    pub goes_on: bool,
}

impl<'a> Machine<'a> {
    pub fn new(transducer: &'a Transducer) -> Self {
        Self { transducer }
    }

    /// How many classes there are.
    pub fn classes(&self) -> u8 {
        self.transducer.classes()
    }

    /// The class of each unit; of those that are none, some that do not exist.
    pub fn units(&self) -> [u8; 256] {
        let ascii = |unit: u8| self.transducer.class_of(char::from(unit));
        std::array::from_fn(|unit| match unit as u8 {
            unit if unit.is_ascii() => ascii(unit),
            unit => unit - Transducer::unit_of(0),
        })
    }

    pub fn class_of(&self, char: char) -> u8 {
        self.transducer.class_of(char)
    }

    /// A unit of each class.
    pub fn distinct_units(&self) -> impl Iterator<Item = u8> {
        (0..self.classes()).map(Transducer::unit_of)
    }

    pub fn start<T>(&self) -> State<T> {
        State::default()
    }

    /// The unit at `at` is of a class.
    pub fn step<T: Copy>(&self, state: &State<T>, class: u8, at: T) -> (State<T>, Settled<T>) {
        let Step { row, set, settled, inside } = self.transducer.step_of(state.row, class);
        let mut pending = state.pending;
        if let Some(place) = pending.get_mut(set..) {
            place.fill(None);
            place.iter_mut().take(1).for_each(|end| *end = Some((at, inside)));
        }
        let ends = || pending[..settled].iter().flatten();
        let is_inside = ends().any(|end| end.1);
        let ends = ends().map(|end| end.0).collect();
        pending[..settled].fill(None);
        pending.rotate_left(settled);
        (State { row, pending }, Settled { ends, goes_on: row != Transducer::TRAPPED && !is_inside })
    }

    /// Where pieces begin in some text, before it is read to its end.
    pub fn begins(&self, classes: &[u8]) -> Vec<usize> {
        // What follows settles all, whatever comes before.
        let flush = ['a', ' ', ' ', 'a', 'a'].map(|char| self.class_of(char));
        let mut state = self.start();
        let mut begins = Vec::new();
        for (at, class) in classes.iter().copied().chain(flush).enumerate() {
            let (next, settled) = self.step(&state, class, at);
            begins.extend(settled.ends);
            state = next;
        }
        begins.retain(|&at| at < classes.len());
        begins
    }

    pub fn begins_in(&self, text: &str) -> Vec<usize> {
        self.begins(&text.chars().map(|char| self.class_of(char)).collect::<Vec<_>>())
    }
}
