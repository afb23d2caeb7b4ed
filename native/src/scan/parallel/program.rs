//! Where pieces begin, worked out for 64 units of text at once.
//!
//! A word has a bit for each unit, the first one lowest. What a unit is comes as the four bits of its role, each in a
//! word of its own; what stands before a unit is a shift, a run is an addition whose carry runs along it. A step tells
//! of nothing but the units up to the end of its word, and says of earlier ones where they change their mind.
//!
//! The width of a word is a parameter, so that the steps that read text are the very ones that `proof` goes through
//! unit after unit.

/// What a unit is to the program. The upper two bits are its kind: letters are 4 to 7, white space 8 to 11,
/// punctuation 12 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// What the program does not understand.
    Hard = 0,
    Digit = 1,
    /// A run of these is a section of its own.
    Ideograph = 2,
    Letter = 4,
    /// Behind a `Letter` it begins a piece.
    Upper = 5,
    /// Like both of these.
    Caseless = 6,
    /// The only letters that a `Leader` may begin a piece with.
    Plain = 7,
    Space = 8,
    Blank = 9,
    Newline = 10,
    Mark = 12,
    /// A mark that may begin a contraction.
    Quote = 13,
    /// A mark that may stand between newlines that belong to the marks before.
    Slash = 14,
    Leader = 15,
}

/// Whether a role is white space, and a kind of letter.
pub fn is_white(role: u8) -> bool {
    role & 0b1100 == 0b1000
}

fn is_letter(role: u8) -> bool {
    role & 0b1100 == 0b0100
}

/// What digits make pieces of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    Single,
    /// Three from the left on.
    Triples,
    /// As letters do.
    Runs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contractions {
    Never,
    /// They are pieces, where a piece begins with the quote.
    Pieces,
    /// They belong to the letters before.
    Suffixes,
}

/// What tells the families apart.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub digits: Digits,
    pub contractions: Contractions,
    /// A mark that a piece begins with takes the letters behind it.
    pub marks_lead: bool,
    /// So does any blank, not the space alone.
    pub blanks_lead: bool,
    /// White space before digits and ideographs is as at the end of the text.
    pub sections: bool,
}

/// A program: rules, and what the units are.
pub struct Program {
    pub rules: Rules,
    /// By unit.
    pub roles: [u8; 256],
    /// By unit: its class, for what follows.
    pub classes: [u8; 256],
    /// Letters that are a contraction behind a quote, by class: one, or two.
    pub one: Vec<u8>,
    pub two: Vec<(u8, u8)>,
}

/// Units before a word that matter to it, each in the lowest bit, and what is open.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Carry {
    letter: u64,
    lower: u64,
    caseless: u64,
    punct: u64,
    mark: u64,
    begun: u64,
    leading: u64,
    space: u64,
    blank: u64,
    white: u64,
    newline: u64,
    ideograph: u64,
    taking: u64,
    leader_run: u64,
    /// How many digits the last group has, if the last unit is one.
    group: u32,
    /// Quotes that may begin a contraction, three bits for the last three units.
    pub quotes: u64,
    /// Where the blanks began that the last unit is one of, if a piece begins there unless a newline follows.
    pub open: Option<usize>,
}

/// What the program reads and writes beside the word that it works on.
pub trait Tape {
    /// A unit up to the end of the word.
    fn unit(&self, at: usize) -> u8;
    /// A piece begins at a unit before the word, or does not.
    fn mark(&mut self, at: usize, begins: bool);
}

/// What a step found.
pub struct Found {
    /// Where pieces begin.
    pub begins: u64,
    /// What the program cannot tell of: nothing from here on counts.
    pub hard: u64,
}

/// A word of `WIDTH` bits.
struct Word<const WIDTH: u32>;

impl<const WIDTH: u32> Word<WIDTH> {
    const MASK: u64 = u64::MAX >> (64 - WIDTH);

    /// Where the unit before is in `bits`.
    #[inline(always)]
    fn behind(bits: u64, carry: &mut u64) -> u64 {
        let behind = (bits << 1 | *carry) & Self::MASK;
        *carry = bits >> (WIDTH - 1);
        behind
    }

    /// What can be come to from `seeds` by steps over `run`: the seeds, and for each the rest of its run and the unit behind.
    #[inline(always)]
    fn spread(seeds: u64, run: u64, carry: &mut u64) -> u64 {
        let (sum, over) = run.overflowing_add(seeds & run);
        let (sum, more) = sum.overflowing_add(*carry);
        *carry = match WIDTH {
            64 => u64::from(over | more),
            _ => sum >> WIDTH & 1,
        };
        ((sum ^ run) | seeds) & Self::MASK
    }
}

impl Program {
    /// One step: the word that begins at unit `at`, with `planes`, the bits of the roles of its units.
    #[inline(always)]
    pub fn step<const WIDTH: u32>(
        &self,
        [b0, b1, b2, b3]: [u64; 4],
        carry: &mut Carry,
        at: usize,
        tape: &mut impl Tape,
    ) -> Found {
        let all = |holds: bool| if holds { u64::MAX } else { 0 };
        let rules = &self.rules;
        let (letter, white, punct) = (b2 & !b3, b3 & !b2, b2 & b3);
        let rest = !(b2 | b3) & Word::<WIDTH>::MASK;
        let (none, first, second, both) = (!b0 & !b1, b0 & !b1, b1 & !b0, b0 & b1);
        let (digit, ideograph) = (rest & first, rest & second);
        let newline = white & b1;
        let (blank, space) = (white & !b1, white & none);

        // Newlines right behind punctuation belong to it.
        let tail = newline | punct & second;
        let seeds = newline & Word::<WIDTH>::behind(punct, &mut carry.punct);
        let taken = Word::<WIDTH>::spread(seeds, tail, &mut carry.taking) & tail;
        let mark = punct & !taken;
        let behind_space = Word::<WIDTH>::behind(space, &mut carry.space);
        let begun = mark & !Word::<WIDTH>::behind(mark, &mut carry.mark) & !behind_space;
        let mut begins = begun;

        // White space up to its last newline is a piece, and what follows is another one.
        let newline = newline & !taken;
        let white = white & !taken;
        begins |= white & !Word::<WIDTH>::behind(white, &mut carry.white);
        let behind_blank = Word::<WIDTH>::behind(blank, &mut carry.blank);
        let starts = blank & !behind_blank;
        let loose = starts & Word::<WIDTH>::behind(newline, &mut carry.newline);
        begins |= loose;
        let closing = newline & behind_blank;
        if closing != 0 {
            begins &= !Self::withdrawn(closing, starts, loose, carry.open, tape);
        }
        if blank >> (WIDTH - 1) == 0 {
            carry.open = None;
        } else if starts != 0 {
            let start = 63 - starts.leading_zeros();
            carry.open = (loose >> start & 1 != 0).then_some(at + start as usize);
        }
        // The last blank goes with what follows.
        let ends = white | all(rules.sections) & (digit | ideograph);
        let followed = behind_blank & !ends;
        begins |= followed >> 1;
        if followed & 1 != 0 {
            tape.mark(at - 1, true);
        }

        // Letters, with what leads them.
        let led_by_leader = letter & both & Word::<WIDTH>::behind(begun & both, &mut carry.leading);
        let led = behind_space
            | all(rules.blanks_lead) & behind_blank
            | all(rules.marks_lead) & Word::<WIDTH>::behind(begun, &mut carry.begun);
        let behind_letter = Word::<WIDTH>::behind(letter, &mut carry.letter);
        begins |= letter & !(behind_letter | led | led_by_leader);
        let plain_run = Word::<WIDTH>::spread(led_by_leader, letter & both, &mut carry.leader_run);
        begins |= plain_run & letter & !both;
        let upper = letter & first;
        begins |= upper & Word::<WIDTH>::behind(letter & none, &mut carry.lower);
        let unclear = upper & Word::<WIDTH>::behind(letter & second, &mut carry.caseless);

        begins |= ideograph & !Word::<WIDTH>::behind(ideograph, &mut carry.ideograph);
        if digit == 0 {
            carry.group = 0;
        } else {
            begins |= self.digits::<WIDTH>(digit, behind_space, &mut carry.group);
        }
        let quotes = punct
            & first
            & match rules.contractions {
                Contractions::Never => 0,
                Contractions::Pieces => begun,
                Contractions::Suffixes => behind_letter,
            };
        if quotes | carry.quotes != 0 {
            begins = self.contractions::<WIDTH>(quotes, &mut carry.quotes, at, begins, tape);
        }
        Found { begins, hard: unclear | rest & none }
    }

    /// Which of `loose` are no beginnings, as newlines follow on the blanks that they begin.
    #[cold]
    fn withdrawn(mut closing: u64, starts: u64, loose: u64, open: Option<usize>, tape: &mut impl Tape) -> u64 {
        let mut withdrawn = 0;
        while closing != 0 {
            let newline = closing & closing.wrapping_neg();
            closing ^= newline;
            match starts & (newline - 1) {
                0 => open.into_iter().for_each(|at| tape.mark(at, false)),
                before => withdrawn |= loose & (1 << (63 - before.leading_zeros())),
            }
        }
        withdrawn
    }

    #[inline(always)]
    fn digits<const WIDTH: u32>(&self, digit: u64, behind_space: u64, group: &mut u32) -> u64 {
        let carried = *group;
        let behind = (digit << 1 | u64::from(carried > 0)) & Word::<WIDTH>::MASK;
        let starts = digit & !behind;
        let goes_on = digit >> (WIDTH - 1) != 0;
        *group = u32::from(goes_on);
        match self.rules.digits {
            Digits::Single => digit,
            Digits::Runs => starts & !behind_space,
            Digits::Triples => {
                let triples = Self::triples(digit, starts, carried);
                if goes_on {
                    *group = match triples {
                        0 => carried + WIDTH,
                        _ => WIDTH - (63 - triples.leading_zeros()),
                    };
                }
                triples
            }
        }
    }

    /// Where groups of three begin. `carried`: how many digits right before the word are in a group.
    #[inline(always)]
    fn triples(digit: u64, mut starts: u64, carried: u32) -> u64 {
        if carried > 0 {
            let room = 3 - carried;
            let first = (2 << room) - 1;
            starts |= u64::from(digit & first == first) << room;
        }
        let third = digit & digit << 1 & digit << 2;
        let mut triples = starts;
        let mut next = starts << 3 & third;
        while next != 0 {
            triples |= next;
            next = next << 3 & third;
        }
        triples
    }

    /// What begins when contractions are looked at, each when the third unit behind its quote is there.
    #[cold]
    fn contractions<const WIDTH: u32>(
        &self,
        quotes: u64,
        carry: &mut u64,
        at: usize,
        mut begins: u64,
        tape: &mut impl Tape,
    ) -> u64 {
        let mut due = u128::from(quotes) << 3 | u128::from(*carry);
        while due & u128::from(Word::<WIDTH>::MASK) != 0 {
            let bit = due.trailing_zeros() as usize;
            due &= due - 1;
            let quote = at + bit - 3;
            let class = |place: usize| self.classes[usize::from(tape.unit(quote + place))];
            let length = match (class(1), class(2)) {
                (first, _) if self.one.contains(&first) => 2,
                pair if self.two.contains(&pair) => 3,
                _ => continue,
            };
            let behind = self.roles[usize::from(tape.unit(quote + length))];
            let mut put = |place: usize, holds: bool| match place.checked_sub(at) {
                Some(bit) => begins = begins & !(1 << bit) | u64::from(holds) << bit,
                None => tape.mark(place, holds),
            };
            let is_suffix = self.rules.contractions == Contractions::Suffixes;
            (usize::from(!is_suffix)..length).for_each(|place| put(quote + place, false));
            if is_letter(behind) {
                put(quote + length, true);
            }
            if behind == Role::Quote as u8 && is_suffix {
                due &= !(1 << (bit + length)); // there is one for each piece
            }
        }
        *carry = (due >> WIDTH) as u64;
        begins
    }
}
