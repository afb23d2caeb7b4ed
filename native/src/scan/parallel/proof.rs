//! Proves that a program and a transducer have the same ends, whatever the text (claim 8 of docs/exactness.md).
//!
//! Both are machines that read a text unit after unit: the program in words of one bit. All that they can be in the
//! middle of together is gone through. Positions matter to it only by their order, by which of them are the same, and by
//! how far the last ones lie behind, so there are finitely many cases.

use rustc_hash::FxHashSet;

use super::machine::{Machine, State};
use super::program::{is_white, Carry, Program, Role, Tape};
use super::SETTLES;

/// Cases beyond these are not looked at, and nothing is proved.
const CASES_MOST: usize = 1 << 16;

/// How far behind a position is told apart; no step changes its mind of what lies further back.
const BEHIND: usize = 4;

/// What is known of a position. One of which nobody can change his mind is forgotten.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Place {
    /// Units behind it, `BEHIND` at most.
    behind: usize,
    /// Units behind the first one that settles it, `SETTLES` at most; none if there is none yet.
    settling: Option<usize>,
    /// Whether a piece begins here, to the program and to the machine.
    program: bool,
    machine: bool,
    /// Whether it is the start of the text, where no end is.
    is_start: bool,
}

impl Place {
    fn is_settled(&self) -> bool {
        self.settling == Some(SETTLES)
    }

    /// One more unit behind it, or this one, which settles it or not.
    fn read(&mut self, settles: bool) {
        self.settling = match self.settling {
            Some(units) => Some((units + 1).min(SETTLES)),
            None => settles.then_some(0),
        };
    }
}

/// What both are in the middle of. Positions are numbers of `places`, which are in order.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Case {
    machine: State<usize>,
    carry: Carry,
    places: Vec<Place>,
    /// The last units, the latest one last, as far as the program may come back to them.
    units: [u8; BEHIND],
    is_behind_newline: bool,
}

/// Where the program is told that it is: far from the numbers of places.
const NOW: usize = 1 << 20;

/// The program's view of a case.
struct View<'a> {
    places: &'a mut [Place],
    units: &'a [u8; BEHIND],
    is_lost: bool,
}

impl Tape for View<'_> {
    fn unit(&self, at: usize) -> u8 {
        self.units[at + BEHIND - 1 - NOW]
    }

    fn mark(&mut self, at: usize, begins: bool) {
        let place = match at.checked_sub(NOW - BEHIND) {
            Some(_) => self.places.iter_mut().find(|place| place.behind == NOW - at),
            None => self.places.get_mut(at),
        };
        match place {
            Some(place) => place.program = begins,
            None => self.is_lost = true,
        }
    }
}

/// Whether the program has the machine's ends, and each is certain when `SETTLES` units were read behind it; or, if it
/// follows on a newline, behind the first unit from it on that is no white space.
pub fn holds(program: &Program, machine: &Machine<'_>) -> bool {
    let units: Vec<u8> = machine.distinct_units().collect();
    let same = |unit: u8| {
        units.iter().find(|&&other| program.classes[usize::from(other)] == program.classes[usize::from(unit)])
    };
    let are_alike = |unit: u8| {
        same(unit).is_none_or(|&other| program.roles[usize::from(unit)] == program.roles[usize::from(other)])
    };
    if !(0..=u8::MAX).all(are_alike) {
        return false;
    }
    let start = Case {
        machine: machine.start(),
        carry: Carry::default(),
        places: Vec::new(),
        units: [0; BEHIND],
        is_behind_newline: false,
    };
    let mut known = FxHashSet::from_iter([start.clone()]);
    let mut cases = vec![start];
    while let Some(case) = cases.pop() {
        for &unit in &units {
            match case.step(program, machine, unit) {
                Ok(Some(next)) if known.insert(next.clone()) => cases.push(next),
                Ok(_) => {}
                Err(Differs) => return false,
            }
        }
        if known.len() > CASES_MOST {
            return false;
        }
    }
    true
}

/// Program and machine do not say the same.
struct Differs;

impl Case {
    /// The case after one more unit; none if the program says that it does not know.
    fn step(&self, program: &Program, machine: &Machine<'_>, unit: u8) -> Result<Option<Self>, Differs> {
        let role = program.roles[usize::from(unit)];
        let mut next = self.clone();
        next.read(unit, role);
        let settled: Vec<Place> = self.places.clone();
        let mut view = View { places: &mut next.places, units: &next.units, is_lost: false };
        let planes = std::array::from_fn(|bit| u64::from(role) >> bit & 1);
        let found = program.step::<1>(planes, &mut next.carry, NOW, &mut view);
        let is_lost = view.is_lost;
        if found.hard != 0 {
            return Ok(None);
        }
        let now = self.places.len();
        next.places[now].program = found.begins != 0;
        next.carry.open = next.carry.open.map(|place| if place == NOW { now } else { place });
        let (state, ends) = machine.step(&next.machine, program.classes[usize::from(unit)], now);
        next.machine = state;
        ends.ends.iter().for_each(|&place| next.places[place].machine = true);
        let changes =
            |(old, new): (&Place, &Place)| old.is_settled() && (old.program, old.machine) != (new.program, new.machine);
        let is_sure = !is_lost && ends.goes_on && !settled.iter().zip(&next.places).any(changes);
        match is_sure && next.forget() {
            true => Ok(Some(next)),
            false => Err(Differs),
        }
    }

    fn read(&mut self, unit: u8, role: u8) {
        self.units.rotate_left(1);
        self.units[BEHIND - 1] = unit;
        for place in &mut self.places {
            place.behind = (place.behind + 1).min(BEHIND);
            place.read(!is_white(role));
        }
        let mut place = Place { is_start: self.machine == State::default(), ..Place::default() };
        place.read(!(self.is_behind_newline && is_white(role)));
        self.is_behind_newline = role == Role::Newline as u8;
        self.places.push(place);
    }

    /// Forgets what nobody comes back to. False if the two differ in what is settled or forgotten.
    fn forget(&mut self) -> bool {
        let Self { machine, carry, places, units, .. } = self;
        let is_named =
            |number: usize| machine.pending.iter().flatten().any(|end| end.0 == number) || carry.open == Some(number);
        let goes = |number: usize, place: &Place| place.behind == BEHIND && !is_named(number);
        let mut kept = Vec::with_capacity(places.len());
        let mut numbers = Vec::with_capacity(places.len());
        for (number, place) in places.iter().enumerate() {
            let goes = goes(number, place);
            if (goes || place.is_settled()) && place.program != place.machine && !place.is_start {
                return false;
            }
            numbers.push(kept.len());
            kept.extend((!goes).then_some(*place));
        }
        *places = kept;
        machine.pending = machine.pending.map(|end| end.map(|(number, inside)| (numbers[number], inside)));
        carry.open = carry.open.map(|number| numbers[number]);
        // The program comes back to the units behind quotes only.
        let wanted = BEHIND - 1 - carry.quotes.trailing_zeros().min(3) as usize;
        units[..BEHIND - wanted].fill(0);
        true
    }
}
