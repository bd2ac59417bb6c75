//! `lrsctl bench`: what LRS gives on this node, with these tasks, against static slots.

pub mod record;
