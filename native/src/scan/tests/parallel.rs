//! Programs of the families against attempt after attempt, and against what is not their machine.

use std::collections::HashMap;

use serde_json::Value;

use super::transducers::plain;
use super::{ACCEPT, CODE_POINTS};
use crate::random::Random;
use crate::scan::automaton::Automaton;
use crate::scan::parallel::{self, Block, Parallel};
use crate::scan::transducer::{self, Transducer};

/// Levels of known patterns, as `toksplice/automaton.py` makes them: the classes of ASCII and of some other characters,
/// the class of the rest, and the table.
const FAMILIES: &str = include_str!("families.json");

/// A level whose table can be changed.
#[derive(Clone)]
pub struct Level {
    classes: Vec<u8>,
    columns: usize,
    table: Vec<u16>,
    keeps_gaps: bool,
}

impl Level {
    fn read(level: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let numbers = |value: &Value| value.as_array().unwrap().iter().map(number).collect::<Vec<_>>();
        let mut classes = vec![number(&level["rest"]) as u8; CODE_POINTS];
        classes.iter_mut().zip(numbers(&level["ascii"])).for_each(|(class, of_ascii)| *class = of_ascii as u8);
        for (point, class) in level["others"].as_object().unwrap() {
            classes[point.parse::<usize>().unwrap()] = number(class) as u8;
        }
        Self {
            classes,
            columns: number(&level["columns"]),
            table: numbers(&level["table"]).into_iter().map(|entry| entry as u16).collect(),
            keeps_gaps: level["keeps_gaps"].as_bool().unwrap(),
        }
    }

    fn automaton(&self) -> Automaton {
        Automaton::new(&self.classes, self.columns, self.table.clone(), self.keeps_gaps).unwrap()
    }
}

pub fn families() -> Vec<(String, Vec<Level>)> {
    let families: HashMap<String, Vec<Value>> = serde_json::from_str(FAMILIES).unwrap();
    let mut families: Vec<_> =
        families.into_iter().map(|(name, levels)| (name, levels.iter().map(Level::read).collect())).collect();
    families.sort_by(|a, b| a.0.cmp(&b.0));
    families
}

pub fn automata(levels: &[Level]) -> Vec<Automaton> {
    levels.iter().map(Level::automaton).collect()
}

/// Text of runs and of what stands between them.
fn text(random: &mut Random) -> String {
    let parts: &[&str] = &[
        "a",
        "s",
        "ll",
        "re",
        "S",
        "Ve",
        "word",
        "Word",
        "WORD",
        "camelCase",
        "\u{17f}",
        "'",
        "'s",
        "'ll",
        "'RE",
        "don't",
        "x'd'm",
        " ",
        "  ",
        "        ",
        "\t",
        "\n",
        "\r\n",
        "\n\n    ",
        " \n  ",
        "\u{a0}",
        "\u{3000}",
        "\u{85}",
        "0",
        "12",
        "2026",
        "1234567",
        ".",
        ",",
        "(",
        "...",
        "/",
        "//\n",
        ";\n/",
        "--",
        "\u{2014}",
        "\u{ab}",
        "\u{20ac}",
        "_",
        "=",
        "\0",
        "\x1b",
        "\u{e9}",
        "\u{df}",
        "\u{6f22}",
        "\u{6f22}\u{5b57}",
        "\u{30ab}",
        "\u{30fb}",
        "\u{d55c}",
        "\u{62f}",
        "\u{928}\u{93f}",
        "\u{301}",
        "\u{200d}",
        "\u{1f937}",
        "\u{b2}",
        "\u{663}",
        "\u{1c4}",
        "\u{1c5}",
        "\u{2b0}",
        "\u{aa}",
        "\u{130}",
        "\u{e000}",
    ];
    let few: Vec<&str> = (0..1 + random.below(6)).map(|_| *random.pick(parts)).collect();
    let mut text = String::new();
    for _ in 0..random.below(120) {
        let part = if random.below(4) == 0 { random.pick(parts) } else { random.pick(&few) };
        let times = if random.below(12) == 0 { 1 + random.below(70) } else { 1 };
        text.extend(std::iter::repeat_n(*part, times));
    }
    text
}

/// Reads `text` block after block, and where the program finds nothing goes on behind the next piece. Gives how many pieces
/// it found.
fn check(
    random: &mut Random,
    levels: &[Automaton],
    (transducer, program): (&Transducer, &Parallel),
    text: &str,
) -> usize {
    let text = text.as_bytes();
    let expected = plain(levels, text, 0);
    let (mut at, mut next, mut found) = (0, 0, 0);
    let mut block = Block::default();
    while at < text.len() {
        program.read(transducer, &mut block, &text[at..]);
        let ends: Vec<_> = block.ends().iter().map(|&end| (at + usize::from(end), true)).collect();
        assert_eq!(ends, expected[next..next + ends.len()], "{:?} from {at}", String::from_utf8_lossy(text));
        (next, found) = (next + ends.len(), found + ends.len());
        let Some(&(last, _)) = ends.last() else {
            let restart = expected[next..].iter().position(|piece| piece.1).expect("the end of the text");
            next += restart + 1;
            at = expected[next - 1].0;
            continue;
        };
        let (end, _) = *random.pick(&ends);
        let reach = program.reach(transducer, text, end);
        // What was settled stays what it is when all text behind is another.
        let other = [&text[..reach], self::text(random).as_bytes()].concat();
        assert!(plain(levels, &other, at).contains(&(end, true)), "{:?} {end} {reach}", String::from_utf8_lossy(text));
        at = last;
        if random.below(3) == 0 {
            block.restart();
        }
    }
    found
}

#[test]
fn programs_have_the_pieces_of_attempt_after_attempt() {
    let mut random = Random(11);
    for (name, levels) in families() {
        let automata = automata(&levels);
        let transducer = transducer::compile(&automata).unwrap();
        let mut program = parallel::compile(&transducer).unwrap_or_else(|| panic!("{name} has a program"));
        let mut found = 0;
        for round in 0..500 {
            if round == 250 {
                program.forget_lanes();
            }
            let text = text(&mut random);
            found += check(&mut random, &automata, (&transducer, &program), &text);
        }
        assert!(found > 5_000, "{name} {found}");
    }
}

#[test]
fn what_is_proved_of_changed_levels_holds() {
    let mut random = Random(12);
    let mut proved = 0;
    for (_, levels) in families() {
        for _ in 0..25 {
            let mut levels = levels.clone();
            for _ in 0..1 + random.below(2) {
                let level = random.below(levels.len());
                let Level { table, columns, .. } = &mut levels[level];
                let other = *random.pick(table);
                let at = *columns + random.below(table.len() - *columns);
                // No match is empty.
                table[at] = if at < 2 * *columns { other & !ACCEPT } else { other };
            }
            let automata = automata(&levels);
            let Some(transducer) = transducer::compile(&automata) else { continue };
            let Some(program) = parallel::compile(&transducer) else { continue };
            proved += 1;
            for _ in 0..40 {
                let text = text(&mut random);
                check(&mut random, &automata, (&transducer, &program), &text);
            }
        }
    }
    assert!(proved > 10, "{proved}");
}
