//! Proposes a program for a machine, by what the machine does with short texts. A guess, which `proof` judges.

use super::super::transducer::Transducer;
use super::machine::Machine;
use super::program::{Contractions, Digits, Program, Role, Rules};

/// A family of patterns: its rules, and a character for each role.
struct Family {
    roles: &'static [(Role, char)],
    marks_lead: bool,
    blanks_lead: bool,
}

const FAMILIES: [Family; 3] = [
    // cl100k, Llama 3, Qwen; o200k, Llama 4, Tekken
    Family {
        roles: &[
            (Role::Letter, 'a'),
            (Role::Upper, 'A'),
            (Role::Caseless, '\u{6f22}'),
            (Role::Digit, '0'),
            (Role::Space, ' '),
            (Role::Blank, '\t'),
            (Role::Newline, '\n'),
            (Role::Mark, '.'),
            (Role::Slash, '/'),
        ],
        marks_lead: true,
        blanks_lead: true,
    },
    // DeepSeek V3
    Family {
        roles: &[
            (Role::Plain, 'a'),
            (Role::Letter, '\u{e9}'),
            (Role::Ideograph, '\u{6f22}'),
            (Role::Digit, '0'),
            (Role::Space, ' '),
            (Role::Blank, '\t'),
            (Role::Newline, '\n'),
            (Role::Leader, '.'),
            (Role::Mark, '\u{2014}'),
        ],
        marks_lead: false,
        blanks_lead: true,
    },
    // GPT-2
    Family {
        roles: &[(Role::Letter, 'a'), (Role::Digit, '0'), (Role::Space, ' '), (Role::Blank, '\t'), (Role::Mark, '.')],
        marks_lead: false,
        blanks_lead: false,
    },
];

/// The programs that may be the machine's.
pub fn proposals(transducer: &Transducer) -> impl Iterator<Item = Program> + '_ {
    FAMILIES.iter().map(|family| family.program(transducer))
}

impl Family {
    fn program(&self, transducer: &Transducer) -> Program {
        let machine = Machine::new(transducer);
        let classes: Vec<u8> = (0..machine.classes()).collect();
        let known: Vec<(u8, Vec<bool>)> = self
            .roles
            .iter()
            .map(|&(role, char)| (role as u8, self.signature(&machine, machine.class_of(char))))
            .collect();
        let role_of = |&class: &u8| {
            let signature = self.signature(&machine, class);
            known.iter().find(|(_, other)| *other == signature).map_or(Role::Hard as u8, |known| known.0)
        };
        let by_class: Vec<u8> = classes.iter().map(role_of).collect();
        let classes = machine.units();
        let mut roles = classes.map(|class| by_class.get(usize::from(class)).copied().unwrap_or_default());
        let contractions = Contraction::find(&machine);
        if contractions.kind != Contractions::Never {
            let quote = machine.class_of('\'');
            roles
                .iter_mut()
                .zip(classes)
                .filter(|(_, class)| *class == quote)
                .for_each(|(role, _)| *role = Role::Quote as u8);
        }
        let digits = match ["00", "0000"].map(|text| machine.begins_in(text)) {
            [two, _] if two == [1] => Digits::Single,
            [_, four] if four == [3] => Digits::Triples,
            _ => Digits::Runs,
        };
        let rules = Rules {
            digits,
            contractions: contractions.kind,
            marks_lead: self.marks_lead,
            blanks_lead: self.blanks_lead,
            sections: machine.begins_in("  0") == [2],
        };
        Program { rules, roles, classes, one: contractions.one, two: contractions.two }
    }

    /// Where pieces begin around a class, beside each pair of others.
    fn signature(&self, machine: &Machine<'_>, class: u8) -> Vec<bool> {
        let around: Vec<u8> = self.roles.iter().map(|&(_, char)| machine.class_of(char)).collect();
        let mut signature = Vec::new();
        for &first in &around {
            for &second in &around {
                for text in [[first, class, second], [first, second, class], [first, class, class]] {
                    let begins = machine.begins(&text);
                    signature.extend((1..4).map(|at| begins.contains(&at)));
                }
            }
        }
        signature
    }
}

/// What letters make a contraction behind a quote.
struct Contraction {
    kind: Contractions,
    one: Vec<u8>,
    two: Vec<(u8, u8)>,
}

impl Contraction {
    fn find(machine: &Machine<'_>) -> Self {
        let kind = match ["'sa", "a'sa"].map(|text| machine.begins_in(text)) {
            [alone, _] if alone == [2] => Contractions::Pieces,
            [_, behind] if behind == [3] => Contractions::Suffixes,
            _ => return Self { kind: Contractions::Never, one: Vec::new(), two: Vec::new() },
        };
        let before: &[char] = if kind == Contractions::Pieces { &['\''] } else { &['a', '\''] };
        let before: Vec<u8> = before.iter().map(|&char| machine.class_of(char)).collect();
        let letter = machine.class_of('a');
        let ends = |classes: &[u8]| {
            let text = [&before, classes, &[letter][..]].concat();
            machine.begins(&text).first() == Some(&(text.len() - 1))
        };
        let classes = || 0..machine.classes();
        let upper = machine.class_of('A');
        let is_letter = |&class: &u8| machine.begins(&[upper, class]).is_empty();
        let one: Vec<u8> = classes().filter(is_letter).filter(|&class| ends(&[class])).collect();
        let pairs = classes()
            .filter(is_letter)
            .flat_map(|first| classes().filter(is_letter).map(move |second| (first, second)));
        let two = pairs.filter(|&(first, second)| !one.contains(&first) && ends(&[first, second])).collect();
        Self { kind, one, two }
    }
}
