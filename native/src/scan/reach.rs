//! How far into the text a piece depends (rules R0 and R1 of docs/exactness.md).

/// The reach of what depends on where the text ends.
pub const FAR: usize = usize::MAX;

/// Attempts that read no further than this many bytes from their start are not recorded: whoever asks adds it.
pub const NEAR: usize = 8;

/// Attempts of one stage that read further than `NEAR`, in the order of their starts.
///
/// `raise(y)` is the rule "all attempts that start at or before y". Positions asked for may fall back a
/// little between calls; the answer then is too large, never too small.
#[derive(Default)]
pub struct LongAttempts {
    list: Vec<(usize, usize)>,
    next: usize,
    furthest: usize,
}

impl LongAttempts {
    pub fn clear(&mut self) {
        self.list.clear();
        self.next = 0;
        self.furthest = 0;
    }

    /// An attempt that started at `start` and read up to `reach`. Says whether that is far.
    #[inline(always)]
    pub fn record(&mut self, start: usize, reach: usize) -> bool {
        let is_long = reach > start + NEAR;
        if is_long {
            self.list.push((start, reach));
        }
        is_long
    }

    /// Up to where the outcome of this stage before `reach` depends on the text.
    #[inline]
    pub fn raise(&mut self, reach: usize) -> usize {
        if reach == FAR {
            return FAR;
        }
        while let Some(&(start, end)) = self.list.get(self.next) {
            if start > reach {
                break;
            }
            self.furthest = self.furthest.max(end);
            self.next += 1;
        }
        // An unrecorded attempt at `reach` itself reads at most NEAR further.
        reach.saturating_add(NEAR).max(self.furthest)
    }

    /// The first attempt that no reach was asked for yet.
    pub fn next_start(&self) -> usize {
        self.list.get(self.next).map_or(FAR, |attempt| attempt.0)
    }
}
