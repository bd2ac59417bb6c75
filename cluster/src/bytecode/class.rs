//! One class file: its header, and its methods when something calls into it.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use noak::AccessFlags;
use noak::error::DecodeError;
use noak::reader::cpool::{ConstantPool, Item, MethodKind};
use noak::reader::{AttributeContent, Class as ClassFile};

use crate::bytecode::code::{Body, Call, How, body, target};

pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) interfaces: Vec<String>,
    pub(crate) is_abstract: bool,
    /// Of a jar that is there for what the job calls; a job names none of its classes.
    pub(crate) is_library: bool,
    bytes: Vec<u8>,
    /// The text says why it cannot be read.
    methods: OnceCell<Result<Methods, String>>,
}

/// Name and descriptor.
pub(crate) type MethodKey = (String, String);

pub(crate) type Methods = BTreeMap<MethodKey, Method>;

pub(crate) struct Method {
    pub(crate) is_bridge: bool,
    pub(crate) is_native: bool,
    /// None: abstract or native.
    pub(crate) body: Option<Body>,
}

impl Class {
    pub(crate) fn new(bytes: Vec<u8>, is_library: bool) -> Result<Class, String> {
        let read = || {
            let file = ClassFile::new(&bytes)?;
            let pool = file.pool();
            let name = pool.retrieve(file.this_class())?.name.display().to_string();
            let parent = match file.super_class() {
                Some(parent) => Some(pool.retrieve(parent)?.name.display().to_string()),
                None => None,
            };
            let mut interfaces = Vec::new();
            for interface in file.interfaces() {
                interfaces.push(pool.retrieve(interface?)?.name.display().to_string());
            }
            let is_abstract =
                file.access_flags().intersects(AccessFlags::ABSTRACT | AccessFlags::INTERFACE);
            Ok((name, parent, interfaces, is_abstract))
        };
        let (name, parent, interfaces, is_abstract) =
            read().map_err(|error: DecodeError| error.to_string())?;
        let methods = OnceCell::new();
        Ok(Class { name, parent, interfaces, is_abstract, is_library, bytes, methods })
    }

    /// The methods, and whether this call has read them.
    pub(crate) fn methods(&self) -> (Result<&Methods, &str>, bool) {
        let is_new = self.methods.get().is_none();
        let read = self.methods.get_or_init(|| methods(&self.bytes));
        (read.as_ref().map_err(String::as_str), is_new)
    }
}

fn methods(bytes: &[u8]) -> Result<Methods, String> {
    let in_words = |error: DecodeError| error.to_string();
    let file = ClassFile::new(bytes).map_err(in_words)?;
    let pool = file.pool();
    let dynamic = bootstraps(&file).map_err(in_words)?;
    let mut methods = Methods::new();
    for method in file.methods() {
        let method = method.map_err(in_words)?;
        let name = pool.retrieve(method.name()).map_err(in_words)?.display().to_string();
        let descriptor =
            pool.retrieve(method.descriptor()).map_err(in_words)?.display().to_string();
        let mut own = None;
        for attribute in method.attributes() {
            let attribute = attribute.map_err(in_words)?;
            if pool.retrieve(attribute.name()).map_err(in_words)?.as_bytes() != b"Code" {
                continue;
            }
            if let AttributeContent::Code(code) = attribute.read_content(pool).map_err(in_words)? {
                let read = body(&code, pool, &dynamic);
                own = Some(read.map_err(|reason| format!("{name}: {reason}"))?);
            }
        }
        let flags = method.access_flags();
        let (is_bridge, is_native) =
            (flags.contains(AccessFlags::BRIDGE), flags.contains(AccessFlags::NATIVE));
        methods.insert((name, descriptor), Method { is_bridge, is_native, body: own });
    }
    Ok(methods)
}

/// What each `invokedynamic` of the class runs, by the number of its bootstrap method. None: a few
/// instructions that Java makes, such as string concatenation.
fn bootstraps(file: &ClassFile<'_>) -> Result<Vec<Option<Call>>, DecodeError> {
    let pool = file.pool();
    let mut found = Vec::new();
    for attribute in file.attributes() {
        let attribute = attribute?;
        if pool.retrieve(attribute.name())?.as_bytes() != b"BootstrapMethods" {
            continue;
        }
        let AttributeContent::BootstrapMethods(table) = attribute.read_content(pool)? else {
            continue;
        };
        for entry in table.methods() {
            let entry = entry?;
            let made_by = handle(pool, pool.get(entry.method_ref())?, How::Dynamic)?;
            found.push(match made_by.as_ref().map(|call| call.target.class.as_str()) {
                Some("java/lang/invoke/LambdaMetafactory") => {
                    match entry.arguments().into_iter().nth(1) {
                        Some(body) => match pool.get(body?)? {
                            Item::MethodHandle(body) => handle(pool, body, How::Exact)?,
                            _ => made_by,
                        },
                        None => made_by,
                    }
                }
                Some(
                    "java/lang/invoke/StringConcatFactory"
                    | "java/lang/runtime/ObjectMethods"
                    | "java/lang/runtime/SwitchBootstraps",
                ) => None,
                _ => made_by,
            });
        }
    }
    Ok(found)
}

/// The call that a method handle makes; None: it reads or writes a field.
fn handle(
    pool: &ConstantPool<'_>,
    handle: &noak::reader::cpool::MethodHandle<'_>,
    how: How,
) -> Result<Option<Call>, DecodeError> {
    let how = match handle.kind {
        MethodKind::InvokeVirtual | MethodKind::InvokeInterface if how == How::Exact => {
            How::Virtual
        }
        _ => how,
    };
    let target = match pool.get(handle.reference)? {
        Item::MethodRef(method) => target(pool, method.class, method.name_and_type)?,
        Item::InterfaceMethodRef(method) => target(pool, method.class, method.name_and_type)?,
        _ => return Ok(None),
    };
    Ok(Some(Call { target, is_later: how != How::Dynamic, how }))
}
