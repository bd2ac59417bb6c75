//! The same recording without names: each text of it becomes a number, the same text the same number.
//!
//! A text is what serde calls one: names, commands, paths of groups, sentences. Words of LRS's own, ids
//! and times are not: they go into a recording as variants, keys and by their `Display`. So a text of a field that is new
//! is replaced without anybody having thought of it; one that has to stay readable has to be made so.
//!
//! Nothing is decided by what a text says, but some by which texts are the same and by the order in
//! which they sort. Whoever writes such a recording plays it at the same time: [`Anonymous::entry`]
//! refuses where that decides anything else.
//!
//! Limits. User ids, process ids and times stay.

use std::cell::RefCell;
use std::collections::HashMap;

use lrs_core::recording::Entry;
use serde::ser::{self, Serialize, Serializer};

use crate::replay::{Played, Player};

/// What becomes of texts.
enum Numbers {
    /// Which became which number.
    Each(RefCell<HashMap<Vec<u8>, usize>>),
    /// All are the same.
    None,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::Each(RefCell::default())
    }
}

/// Replaces names in entries, one after the other.
#[derive(Default)]
pub struct Anonymous {
    numbers: Numbers,
    player: Player,
}

impl Anonymous {
    /// The entry without names, encoded; its steps have their sentences anew.
    ///
    /// # Errors
    /// Without names something else would have been decided; or it cannot be encoded.
    pub fn entry(&mut self, entry: Entry) -> Result<Vec<u8>, String> {
        if matches!(entry, Entry::Header(_) | Entry::Settings(_) | Entry::End(_)) {
            return crate::encode(&entry);
        }
        let bytes = encode(&entry, &self.numbers)?;
        let mut nameless = crate::decode(&bytes).map_err(|error| error.to_string())?;
        if let Played::Step(now) = self.player.play(&nameless)?
            && let (Entry::Decided(then), Entry::Decided(decided)) = (&entry, &mut nameless)
        {
            // A sentence has the names in it: with numbers it is another text, whatever it says.
            if encode(&then.step, &Numbers::None)? != encode(&*now, &Numbers::None)? {
                let what = crate::words::input(&then.input);
                return Err(format!("without names something else is decided when {what}"));
            }
            decided.step = *now;
        }
        crate::encode(&nameless)
    }
}

fn encode(value: &impl Serialize, numbers: &Numbers) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut inner = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    let nameless = Nameless { value, numbers, is_key: false };
    nameless.serialize(&mut inner).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// A value without its names.
struct Nameless<'a, T: ?Sized> {
    value: &'a T,
    numbers: &'a Numbers,
    /// A text that is a key is a word of LRS's own.
    is_key: bool,
}

impl<T: Serialize + ?Sized> Serialize for Nameless<'_, T> {
    fn serialize<S: Serializer>(&self, inner: S) -> Result<S::Ok, S::Error> {
        let Nameless { value, numbers, is_key } = *self;
        value.serialize(Replace { inner, numbers, is_key })
    }
}

/// Serializes by `inner`, but for texts. The compound ones are their own parts' serializers.
struct Replace<'a, S> {
    inner: S,
    numbers: &'a Numbers,
    is_key: bool,
}

impl<'a, S> Replace<'a, S> {
    fn value<'v, T: ?Sized>(&self, value: &'v T) -> Nameless<'v, T>
    where
        'a: 'v,
    {
        Nameless { value, numbers: self.numbers, is_key: false }
    }

    /// Its number; a unit keeps the type that makes it one.
    fn number(&self, text: &[u8]) -> String {
        let Numbers::Each(numbers) = self.numbers else { return String::new() };
        if text.is_empty() {
            return String::new();
        }
        let mut numbers = numbers.borrow_mut();
        let next = numbers.len() + 1;
        let number = *numbers.entry(text.to_vec()).or_insert(next);
        let ending = [".service", ".scope"].into_iter().find(|end| text.ends_with(end.as_bytes()));
        format!("{number}{}", ending.unwrap_or_default())
    }
}

macro_rules! as_it_is {
    ($($method:ident: $kind:ty),*) => {
        $(fn $method(self, value: $kind) -> Result<S::Ok, S::Error> { self.inner.$method(value) })*
    };
}

impl<'a, S: Serializer> Serializer for Replace<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Replace<'a, S::SerializeSeq>;
    type SerializeTuple = Replace<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Replace<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Replace<'a, S::SerializeTupleVariant>;
    type SerializeMap = Replace<'a, S::SerializeMap>;
    type SerializeStruct = Replace<'a, S::SerializeStruct>;
    type SerializeStructVariant = Replace<'a, S::SerializeStructVariant>;

    as_it_is! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_unit_struct: &'static str
    }

    fn serialize_str(self, text: &str) -> Result<S::Ok, S::Error> {
        if self.is_key {
            return self.inner.serialize_str(text);
        }
        let number = self.number(text.as_bytes());
        self.inner.serialize_str(&number)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<S::Ok, S::Error> {
        let number = self.number(bytes);
        self.inner.serialize_bytes(number.as_bytes())
    }

    /// Ids and times.
    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let value = self.value(value);
        self.inner.serialize_some(&value)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    /// A label is a text, as a key too.
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.value(value);
        self.inner.serialize_newtype_struct(name, &value)
    }

    /// What an `OsStr` is: any bytes, which serde has as a row of numbers.
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        if name == "OsString" {
            let bytes = rmp_serde::to_vec(value).map_err(ser::Error::custom)?;
            let number = self.number(&bytes).into_bytes();
            return self.inner.serialize_newtype_variant(name, index, variant, &number);
        }
        let value = self.value(value);
        self.inner.serialize_newtype_variant(name, index, variant, &value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Replace { inner: self.inner.serialize_seq(len)?, numbers: self.numbers, is_key: false })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(Replace {
            inner: self.inner.serialize_tuple(len)?,
            numbers: self.numbers,
            is_key: false,
        })
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let inner = self.inner.serialize_tuple_struct(name, len)?;
        Ok(Replace { inner, numbers: self.numbers, is_key: false })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let inner = self.inner.serialize_tuple_variant(name, index, variant, len)?;
        Ok(Replace { inner, numbers: self.numbers, is_key: false })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Replace { inner: self.inner.serialize_map(len)?, numbers: self.numbers, is_key: false })
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let inner = self.inner.serialize_struct(name, len)?;
        Ok(Replace { inner, numbers: self.numbers, is_key: false })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let inner = self.inner.serialize_struct_variant(name, index, variant, len)?;
        Ok(Replace { inner, numbers: self.numbers, is_key: false })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! rows {
    ($($kind:ident: $method:ident),*) => {
        $(impl<S: ser::$kind> ser::$kind for Replace<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let value = Nameless { value, numbers: self.numbers, is_key: false };
                self.inner.$method(&value)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

rows! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
}

macro_rules! named {
    ($($kind:ident),*) => {
        $(impl<S: ser::$kind> ser::$kind for Replace<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                let value = Nameless { value, numbers: self.numbers, is_key: false };
                self.inner.serialize_field(name, &value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

named! { SerializeStruct, SerializeStructVariant }

impl<S: ser::SerializeMap> ser::SerializeMap for Replace<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.inner.serialize_key(&Nameless { value, numbers: self.numbers, is_key: true })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.inner.serialize_value(&Nameless { value, numbers: self.numbers, is_key: false })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}
