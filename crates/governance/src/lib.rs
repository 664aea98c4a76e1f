//! Who may do what, how often, and at what cost.
