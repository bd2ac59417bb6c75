//! The instructions of one method as a graph, and what they call.

use noak::error::DecodeError;
use noak::reader::attributes::{Code, RawInstruction};
use noak::reader::cpool::{self, ConstantPool, Item};

/// A method longer than this is none: the JVM's limit (JVM specification 4.7.3), in bytes.
const MAX_BYTES: usize = 65_535;

/// A method by the names that a call has for it, in the JVM's spelling (`java/lang/Object`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) descriptor: String,
}

/// The body of a method.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Number of instructions that the first one leads to; the first is number 0.
    pub(crate) instructions: usize,
    /// From instruction to instruction.
    pub(crate) edges: Vec<(u32, u32)>,
    /// Instruction and what it calls.
    pub(crate) calls: Vec<(u32, Target)>,
}

/// One instruction as it is read.
struct Step {
    at: i64,
    /// Offsets in bytes from the beginning of the method.
    jumps: Vec<i64>,
    /// Whether the next instruction may follow.
    falls: bool,
    call: Option<Target>,
}

/// Reads a body, or says what is wrong with it.
pub(crate) fn body(code: &Code<'_>, pool: &ConstantPool<'_>) -> Result<Body, String> {
    let mut steps = Vec::new();
    for instruction in code.raw_instructions() {
        let (at, instruction) = instruction.map_err(|error| error.to_string())?;
        if at.as_u32() as usize > MAX_BYTES {
            return Err(format!("a method has more than {MAX_BYTES} bytes"));
        }
        let at = i64::from(at.as_u32());
        let mut step = Step { at, jumps: Vec::new(), falls: true, call: None };
        step.read(&instruction, pool).map_err(|error| error.to_string())?;
        steps.push(step);
    }
    connect(&steps)
}

impl Step {
    fn read(
        &mut self,
        instruction: &RawInstruction<'_>,
        pool: &ConstantPool<'_>,
    ) -> Result<(), DecodeError> {
        use RawInstruction as R;
        match instruction {
            R::IfACmpEq { offset }
            | R::IfACmpNe { offset }
            | R::IfICmpEq { offset }
            | R::IfICmpGe { offset }
            | R::IfICmpGt { offset }
            | R::IfICmpLe { offset }
            | R::IfICmpLt { offset }
            | R::IfICmpNe { offset }
            | R::IfEq { offset }
            | R::IfGe { offset }
            | R::IfGt { offset }
            | R::IfLe { offset }
            | R::IfLt { offset }
            | R::IfNe { offset }
            | R::IfNonNull { offset }
            | R::IfNull { offset }
            // Comes back to the next instruction.
            | R::JSr { offset } => self.jump(i64::from(*offset)),
            R::JSrW { offset } => self.jump(i64::from(*offset)),
            R::Goto { offset } => self.only(i64::from(*offset)),
            R::GotoW { offset } => self.only(i64::from(*offset)),
            R::LookupSwitch(switch) => {
                self.only(i64::from(switch.default_offset()));
                switch.pairs().for_each(|pair| self.jump(i64::from(pair.offset())));
            }
            R::TableSwitch(switch) => {
                self.only(i64::from(switch.default_offset()));
                // Its iterator overflows behind the greatest key, and that key serves no program.
                let keys = i64::from(switch.high()) - i64::from(switch.low()) + 1;
                let keys = if switch.high() == i32::MAX { keys - 1 } else { keys };
                let keys = usize::try_from(keys).unwrap_or(0);
                switch.pairs().take(keys).for_each(|pair| self.jump(i64::from(pair.offset())));
            }
            R::AReturn
            | R::AThrow
            | R::DReturn
            | R::FReturn
            | R::IReturn
            | R::LReturn
            | R::Return
            | R::Ret { .. }
            | R::RetW { .. } => self.falls = false,
            R::InvokeVirtual { index } => {
                let method = pool.get(*index)?;
                self.call = Some(target(pool, method.class, method.name_and_type)?);
            }
            R::InvokeInterface { index, .. } => {
                let method = pool.get(*index)?;
                self.call = Some(target(pool, method.class, method.name_and_type)?);
            }
            R::InvokeSpecial { index } | R::InvokeStatic { index } => match pool.get(*index)? {
                Item::MethodRef(method) => {
                    self.call = Some(target(pool, method.class, method.name_and_type)?);
                }
                Item::InterfaceMethodRef(method) => {
                    self.call = Some(target(pool, method.class, method.name_and_type)?);
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn jump(&mut self, by: i64) {
        self.jumps.push(self.at + by);
    }

    fn only(&mut self, by: i64) {
        self.falls = false;
        self.jump(by);
    }
}

fn target<'input>(
    pool: &ConstantPool<'input>,
    class: cpool::Index<cpool::Class<'input>>,
    named: cpool::Index<cpool::NameAndType<'input>>,
) -> Result<Target, DecodeError> {
    let named = pool.retrieve(named)?;
    Ok(Target {
        class: pool.retrieve(class)?.name.display().to_string(),
        name: named.name.display().to_string(),
        descriptor: named.descriptor.display().to_string(),
    })
}

/// The graph of what the first instruction leads to.
fn connect(steps: &[Step]) -> Result<Body, String> {
    let index = |at: i64| {
        let found = steps.binary_search_by_key(&at, |step| step.at);
        found.map_err(|_| format!("a jump to {at}, where no instruction begins"))
    };
    let mut numbers: Vec<Option<u32>> = vec![None; steps.len()];
    let mut body = Body::default();
    let mut waiting = Vec::new();
    let mut number_of = |step: usize, waiting: &mut Vec<usize>, known: &mut usize| {
        *numbers[step].get_or_insert_with(|| {
            waiting.push(step);
            *known += 1;
            (*known - 1) as u32
        })
    };
    if steps.is_empty() {
        return Err("a method without instructions".to_owned());
    }
    number_of(0, &mut waiting, &mut body.instructions);
    while let Some(step) = waiting.pop() {
        let from = number_of(step, &mut waiting, &mut body.instructions);
        let mut next: Vec<usize> = Vec::new();
        for jump in &steps[step].jumps {
            next.push(index(*jump)?);
        }
        if steps[step].falls {
            if step + 1 == steps.len() {
                return Err("a method that runs past its end".to_owned());
            }
            next.push(step + 1);
        }
        next.sort_unstable();
        next.dedup();
        for next in next {
            let to = number_of(next, &mut waiting, &mut body.instructions);
            body.edges.push((from, to));
        }
        if let Some(call) = &steps[step].call {
            body.calls.push((from, call.clone()));
        }
    }
    Ok(body)
}
