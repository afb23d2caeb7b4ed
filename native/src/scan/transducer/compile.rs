//! From the automata of the split levels to the table of one machine.
//!
//! A state of the machine is what the levels are in the middle of: for each upper level the state of its automaton, and
//! for the last level the attempts under way. There can be several of those. An attempt that has a match and reads on,
//! to see whether a longer one comes, leaves open where the next piece begins; so the attempt that follows on the match so
//! far runs along, and the one that follows on that one's. The position where each ends so far is kept outside the
//! state, in the order of the attempts: a step sets one of these positions and settles some of the first ones.

use rustc_hash::FxHashMap;

use super::{entry, Transducer, FIRST_ROW, PENDING, ROW, START_ROW, TABLE, TRAP, UNSET, WIDE, WITHIN};
use crate::scan::automaton::{Automaton, DEAD_STATE as DEAD, START};
use crate::scan::classes::CharClasses;

/// A level, and what is certain of its attempts.
struct Level<'a> {
    automaton: &'a Automaton,
    /// By state: whether an attempt in it, without a match so far, certainly has one in the end. For upper levels also:
    /// whether each match ends with the last unit that was read but one, so that it is known at once.
    sure: Vec<bool>,
}

/// What one piece of a level, or a try at one, is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Attempt {
    /// It is over. Its end is settled when those before it are.
    Over,
    /// Text that no match covers.
    Gap,
    /// The same, but the attempt behind it may fail, and then its text belongs to the gap.
    OpenGap,
    /// One unit of an attempt that may fail, and then the unit is text that no match covers.
    Maybe(u16),
    /// An attempt that has a match, or certainly will have.
    Match(u16),
}
use Attempt::{Gap, Match, Maybe, OpenGap, Over};

impl<'a> Level<'a> {
    fn new(automaton: &'a Automaton, is_last: bool) -> Self {
        let states = automaton.states();
        let mut sure = vec![true; states];
        sure[DEAD as usize] = false;
        loop {
            let holds = |state: usize| {
                (0..=automaton.end_column()).all(|column| match automaton.entry(state as u16, column) {
                    (_, true) if is_last => true,
                    (DEAD, accepts) => accepts,
                    (next, _) => column != automaton.end_column() && sure[next as usize],
                })
            };
            let next: Vec<bool> = (0..states).map(|state| sure[state] && holds(state)).collect();
            if next == sure {
                return Self { automaton, sure };
            }
            sure = next;
        }
    }

    /// After the first unit of a piece.
    fn start(&self, column: usize) -> Attempt {
        match self.automaton.entry(START as u16, column).0 {
            DEAD => Gap,
            next if self.sure[next as usize] => Match(next),
            next => Maybe(next),
        }
    }

    /// The state after one more unit, and whether the match can end before it.
    fn entry(&self, state: u16, column: usize) -> (u16, bool) {
        let (next, ends) = self.automaton.entry(state, column);
        (if column == self.automaton.end_column() { DEAD } else { next }, ends)
    }

    /// `attempt` after one more unit, where `behind` is the attempt that follows on it; and whether the piece can end
    /// before the unit. None if what may fail is longer than a unit.
    fn step(&self, attempt: Attempt, behind: Option<&Attempt>, column: usize) -> Option<(Attempt, bool)> {
        Some(match attempt {
            Over => (Over, false),
            Gap if column == self.automaton.end_column() => (Over, true),
            Gap => match self.start(column) {
                Gap => (Gap, false),
                Maybe(_) => (OpenGap, true),
                _ => (Over, true),
            },
            OpenGap => match behind {
                Some(&Maybe(state)) if self.entry(state, column) == (DEAD, false) => self.step(Gap, None, column)?,
                _ => (Over, false),
            },
            Maybe(state) => match self.entry(state, column) {
                (DEAD, false) => self.step(Gap, None, column)?,
                (next, false) if !self.sure[next as usize] => return None,
                (next, ends) => (live(next), ends),
            },
            Match(state) => {
                let (next, ends) = self.entry(state, column);
                (live(next), ends)
            }
        })
    }
}

fn live(state: u16) -> Attempt {
    if state == DEAD {
        Over
    } else {
        Match(state)
    }
}

/// What the levels are in the middle of.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// By upper level, where there is never more than one.
    upper: Vec<Attempt>,
    /// Those of the last level, each on the end of the one before.
    attempts: Vec<Attempt>,
}

/// What a step does to the positions.
struct Ends {
    /// The one that is set.
    set: usize,
    /// How many of the first are settled.
    settled: usize,
    /// Whether an upper level has a match on both sides of where the position is set.
    inside: bool,
}

struct Machine<'a> {
    upper: Vec<Level<'a>>,
    last: Level<'a>,
}

impl<'a> Machine<'a> {
    fn new(levels: &'a [Automaton]) -> Option<Self> {
        let (last, upper) = levels.split_last()?;
        let is_fit = |level: &Automaton| {
            let mut first = (0..=level.end_column()).map(|column| level.entry(START as u16, column));
            first.all(|(_, matches_nothing)| !matches_nothing)
        };
        let fits = upper.iter().all(|level| level.keeps_gaps) && levels.iter().all(is_fit);
        let upper = upper.iter().map(|automaton| Level::new(automaton, false));
        fits.then(|| Self { upper: upper.collect(), last: Level::new(last, true) })
    }

    /// The state after the first unit of a piece of all levels. `columns`: of the unit, by level.
    fn first(&self, columns: &[u8]) -> Option<State> {
        let (&column, columns) = columns.split_last()?;
        let upper = self.upper.iter().zip(columns).map(|(level, &column)| certain(level.start(column.into())));
        self.kept(State { upper: upper.collect::<Option<_>>()?, attempts: vec![self.last.start(column.into())] })
    }

    /// The state after one more unit; none if it needs more attempts at once than there are positions, or is not certain
    /// to have matches.
    fn step(&self, from: &State, columns: &[u8]) -> Option<(State, Ends)> {
        let (&column, columns) = columns.split_last()?;
        let (mut boundary, mut inside) = (false, false);
        let mut upper = Vec::with_capacity(self.upper.len());
        for ((level, &attempt), &column) in self.upper.iter().zip(&from.upper).zip(columns) {
            let next = level.step(attempt, None, column.into())?.0;
            boundary |= next != Gap && !matches!(next, Match(_));
            inside |= !boundary && attempt != Gap;
            upper.push(if boundary { certain(level.start(column.into()))? } else { next });
        }
        let read = if boundary { self.last.automaton.end_column() } else { column.into() };
        let mut attempts = Vec::with_capacity(PENDING + 1);
        let mut set = UNSET;
        for (position, &attempt) in from.attempts.iter().enumerate() {
            let (next, ends) = self.last.step(attempt, from.attempts.get(position + 1), read)?;
            attempts.push(next);
            if ends {
                set = position;
                attempts.push(self.last.start(column.into()));
            }
            if ends || next == Gap {
                break;
            }
        }
        let settled = attempts.iter().take_while(|&&attempt| attempt == Over).count();
        attempts.drain(..settled);
        let state = self.kept(State { upper, attempts })?;
        (state.attempts.len() <= PENDING).then_some((state, Ends { set, settled, inside }))
    }

    /// The state, unless it has text that no match covers where the model does not see such text.
    fn kept(&self, state: State) -> Option<State> {
        let matches = || state.attempts.iter().all(|attempt| matches!(attempt, Match(_) | Over));
        (self.last.automaton.keeps_gaps || matches()).then_some(state)
    }
}

/// An upper level's attempt, if it cannot fail.
fn certain(attempt: Attempt) -> Option<Attempt> {
    Some(attempt).filter(|attempt| !matches!(attempt, Maybe(_)))
}

/// The classes of characters for all levels at once, and by class its column in each level. None if one of them reads
/// bytes, or there are too many classes.
fn joint(levels: &[Automaton]) -> Option<(CharClasses, Vec<Vec<u8>>)> {
    let divisions = levels.iter().map(Automaton::char_classes).collect::<Option<Vec<_>>>()?;
    let mut known: FxHashMap<Vec<u8>, u8> = FxHashMap::default();
    let mut columns = Vec::new();
    let classes = CharClasses::joint(&divisions, |of_each| {
        *known.entry(of_each).or_insert_with_key(|of_each| {
            columns.push(of_each.clone());
            (columns.len() - 1) as u8
        })
    });
    // Beyond so many the numbers have run over.
    (columns.len() < WITHIN as usize - WIDE).then_some((classes, columns))
}

/// The machine of some levels, if it is small enough and its levels are as it needs them.
pub fn compile(levels: &[Automaton]) -> Option<Transducer> {
    let machine = Machine::new(levels)?;
    let (by_char, columns) = joint(levels)?;
    let mut rows = Rows::default();
    let mut by_class: Vec<Vec<u32>> = vec![columns.iter().map(|_| entry(TRAP, UNSET, 0, false)).collect()];
    let first = columns.iter().map(|columns| match machine.first(columns) {
        None => Some(entry(TRAP, UNSET, 0, false)),
        Some(state) => Some(entry(rows.row(state)?, UNSET, 0, false)),
    });
    by_class.push(first.collect::<Option<_>>()?);
    while let Some(state) = rows.states.get(by_class.len() - FIRST_ROW).cloned() {
        let row = columns.iter().map(|columns| match machine.step(&state, columns) {
            None => Some(entry(TRAP, UNSET, 0, false)),
            Some((state, ends)) => Some(entry(rows.row(state)?, ends.set, ends.settled, ends.inside)),
        });
        by_class.push(row.collect::<Option<_>>()?);
    }
    let mut by_unit = [0; 256];
    (0..WIDE).for_each(|unit| by_unit[unit] = by_char.of(unit as u32));
    (0..columns.len()).for_each(|class| by_unit[WIDE + class] = class as u8);
    let mut table = vec![0; TABLE];
    for (number, row) in by_class.iter().enumerate() {
        for (unit, &class) in by_unit.iter().enumerate() {
            table[number * ROW + unit] = row[class as usize];
        }
        table[number * ROW + usize::from(WITHIN)] = entry(number as u32, UNSET, 0, false);
    }
    Some(Transducer {
        by_char,
        table: table.into_boxed_slice().try_into().ok()?,
        cuts: cuts(&by_class, &by_unit[..WIDE]),
        classes: columns.len() as u8,
        is_nested: levels.len() > 1,
    })
}

/// The row of each state.
#[derive(Default)]
struct Rows {
    known: FxHashMap<State, u32>,
    states: Vec<State>,
}

impl Rows {
    /// None when there are too many.
    fn row(&mut self, state: State) -> Option<u32> {
        let Self { known, states } = self;
        let row = *known.entry(state).or_insert_with_key(|state| {
            states.push(state.clone());
            (states.len() - 1 + FIRST_ROW) as u32
        });
        ((row as usize) < TABLE / ROW).then_some(row)
    }
}

/// By pair of ASCII characters: whether, after the first, whatever came before, a piece begins with the second.
fn cuts(by_class: &[Vec<u32>], ascii: &[u8]) -> Vec<bool> {
    let classes = by_class[0].len();
    let next = |row: usize, class: usize| (by_class[row][class] / entry(1, 0, 0, false)) as usize;
    let rows = START_ROW..by_class.len();
    let begins = |first: usize, second: usize| {
        let mut after = rows.clone().map(|row| next(row, first)).filter(|&row| row != TRAP as usize);
        let begun = next(START_ROW, second);
        begun != TRAP as usize && after.all(|row| next(row, second) == begun)
    };
    let pairs: Vec<bool> = (0..classes * classes).map(|pair| begins(pair / classes, pair % classes)).collect();
    let pair = |first: u8, second: u8| pairs[first as usize * classes + second as usize];
    ascii.iter().flat_map(|&first| ascii.iter().map(move |&second| pair(first, second))).collect()
}
