//! Places of which one principal can have a share only.

use crate::principal::Principal;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A bounded number of places, of which no principal can have all.
///
/// Taking one is a look into a table behind a lock: for what does not happen at every request.
#[derive(Debug)]
pub struct FairShare {
    max_total: usize,
    max_per_principal: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    per_principal: HashMap<Principal, usize>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<FairShare>,
    principal: Principal,
}

impl FairShare {
    /// Places for `max_total`, of whom one principal can have `max_per_principal`.
    pub fn new(max_total: usize, max_per_principal: usize) -> Arc<Self> {
        Arc::new(Self {
            max_total,
            max_per_principal,
            taken: Mutex::default(),
        })
    }

    /// A place, if there is one for `principal`.
    pub fn take(self: &Arc<Self>, principal: &Principal) -> Option<Slot> {
        let mut taken = self.lock();
        let of_principal = taken.per_principal.get(principal).copied().unwrap_or(0);
        if self.max_total <= taken.total || self.max_per_principal <= of_principal {
            return None;
        }
        taken.total += 1;
        taken
            .per_principal
            .insert(principal.clone(), of_principal + 1);
        Some(Slot {
            slots: Arc::clone(self),
            principal: principal.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.total -= 1;
        if let Some(of_principal) = taken.per_principal.get_mut(&self.principal) {
            *of_principal -= 1;
            if *of_principal == 0 {
                taken.per_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_its_share_and_all_come_back() {
        let slots = FairShare::new(3, 2);
        let (a, b) = (Principal::new("a"), Principal::new("b"));
        let first = slots.take(&a).unwrap();
        let second = slots.take(&a).unwrap();
        assert!(slots.take(&a).is_none(), "its share");
        let third = slots.take(&b).unwrap();
        assert!(slots.take(&b).is_none(), "everybody's");
        drop(first);
        let fourth = slots.take(&b).unwrap();
        drop((second, third, fourth));
        assert!(slots.lock().per_principal.is_empty());
        assert_eq!(slots.lock().total, 0);
    }
}
