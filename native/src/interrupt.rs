//! How a long call is interrupted.

/// The caller asked to stop.
#[derive(Debug)]
pub struct Interrupted;

/// Pieces between two looks at whether the caller wants to go on.
const PIECES_A_LOOK: u32 = 1 << 15;

/// Asks the caller now and then whether to stop.
pub struct Watch<'a> {
    until_look: u32,
    interrupted: &'a mut dyn FnMut() -> bool,
}

impl<'a> Watch<'a> {
    pub fn new(interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Self { until_look: PIECES_A_LOOK, interrupted }
    }

    /// Whether to stop; called at every piece.
    #[inline(always)]
    pub fn stops(&mut self) -> bool {
        self.until_look -= 1;
        self.until_look == 0 && self.look()
    }

    /// So many pieces passed without a call: the next call may look.
    #[inline(always)]
    pub fn passed(&mut self, pieces: usize) {
        self.until_look = self.until_look.saturating_sub(pieces as u32).max(1);
    }

    #[cold]
    fn look(&mut self) -> bool {
        self.until_look = PIECES_A_LOOK;
        (self.interrupted)()
    }
}
