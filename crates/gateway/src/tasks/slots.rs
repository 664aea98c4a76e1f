use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A bounded number of places, of which nobody can have all.
#[derive(Debug)]
pub(crate) struct Slots {
    max_total: usize,
    max_per_principal: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    per_principal: HashMap<Arc<str>, usize>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    principal: Arc<str>,
}

impl Slots {
    pub(crate) fn new(max_total: usize, max_per_principal: usize) -> Arc<Self> {
        Arc::new(Self {
            max_total,
            max_per_principal,
            taken: Mutex::default(),
        })
    }

    /// A place, if there is one for `principal`.
    pub(crate) fn take(self: &Arc<Self>, principal: &Arc<str>) -> Option<Slot> {
        let mut taken = self.lock();
        let of_principal = taken.per_principal.get(principal).copied().unwrap_or(0);
        if self.max_total <= taken.total || self.max_per_principal <= of_principal {
            return None;
        }
        taken.total += 1;
        taken
            .per_principal
            .insert(Arc::clone(principal), of_principal + 1);
        Some(Slot {
            slots: Arc::clone(self),
            principal: Arc::clone(principal),
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
        let slots = Slots::new(3, 2);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
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
