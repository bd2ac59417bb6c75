//! The introspection document of an object, written from the tables.

use std::fmt::Write as _;

use super::contract::{Argument, MANAGER_METHODS, Method, SIGNALS, Signal, TASK_METHODS};
use super::contract::{INTROSPECTABLE, MANAGER, OBJECT_MANAGER, PEER, PROPERTIES, TASK};
use super::properties::{MANAGER as MANAGER_PROPERTIES, Property, TASK as TASK_PROPERTIES};

const HEAD: &str = "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection \
                    1.0//EN\"\n \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n";

/// What GDBus tools take for documentation.
const DOC: &str = "org.gtk.GDBus.DocString";

/// The manager, with the names of its children.
pub(super) fn manager() -> String {
    let mut xml = begin();
    everywhere(&mut xml);
    properties(&mut xml);
    object_manager(&mut xml);
    interface(&mut xml, MANAGER, MANAGER_METHODS, MANAGER_PROPERTIES, SIGNALS);
    xml.push_str(" <node name=\"task\"/>\n</node>\n");
    xml
}

/// A task.
pub(super) fn task() -> String {
    let mut xml = begin();
    everywhere(&mut xml);
    properties(&mut xml);
    interface(&mut xml, TASK, TASK_METHODS, TASK_PROPERTIES, &[]);
    xml.push_str("</node>\n");
    xml
}

/// An object with nothing but children.
pub(super) fn directory(children: impl IntoIterator<Item = String>) -> String {
    let mut xml = begin();
    everywhere(&mut xml);
    for child in children {
        put(&mut xml, format_args!(" <node name=\"{child}\"/>"));
    }
    xml.push_str("</node>\n");
    xml
}

fn begin() -> String {
    format!("{HEAD}<node>\n")
}

/// One line. Writing to a String does not fail.
fn put(xml: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(xml, "{line}");
}

fn interface<T>(
    xml: &mut String,
    name: &str,
    methods: &[Method],
    properties: &[Property<T>],
    signals: &[Signal],
) {
    put(xml, format_args!(" <interface name=\"{name}\">"));
    for method in methods {
        put(xml, format_args!("  <method name=\"{}\">", method.name));
        documented(xml, method.doc);
        arguments(xml, method.takes, " direction=\"in\"");
        arguments(xml, method.gives, " direction=\"out\"");
        put(xml, format_args!("  </method>"));
    }
    for property in properties {
        let (name, kind) = (property.name, property.signature);
        put(xml, format_args!("  <property name=\"{name}\" type=\"{kind}\" access=\"read\">"));
        documented(xml, property.doc);
        if !property.announced {
            annotation(xml, "org.freedesktop.DBus.Property.EmitsChangedSignal", "false");
        }
        put(xml, format_args!("  </property>"));
    }
    for signal in signals {
        put(xml, format_args!("  <signal name=\"{}\">", signal.name));
        documented(xml, signal.doc);
        arguments(xml, signal.gives, "");
        put(xml, format_args!("  </signal>"));
    }
    put(xml, format_args!(" </interface>"));
}

fn documented(xml: &mut String, doc: &str) {
    if !doc.is_empty() {
        annotation(xml, DOC, doc);
    }
}

fn annotation(xml: &mut String, name: &str, value: &str) {
    // Our own texts: of what XML reserves they may hold these.
    let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    put(xml, format_args!("   <annotation name=\"{name}\" value=\"{value}\"/>"));
}

fn arguments(xml: &mut String, arguments: &[Argument], direction: &str) {
    for (name, kind) in arguments {
        put(xml, format_args!("   <arg name=\"{name}\" type=\"{kind}\"{direction}/>"));
    }
}

fn everywhere(xml: &mut String) {
    put(
        xml,
        format_args!(
            r#" <interface name="{PEER}">
  <method name="Ping"/>
  <method name="GetMachineId"><arg name="machine_uuid" type="s" direction="out"/></method>
 </interface>
 <interface name="{INTROSPECTABLE}">
  <method name="Introspect"><arg name="xml_data" type="s" direction="out"/></method>
 </interface>"#
        ),
    );
}

fn properties(xml: &mut String) {
    put(
        xml,
        format_args!(
            r#" <interface name="{PROPERTIES}">
  <method name="Get">
   <arg name="interface_name" type="s" direction="in"/>
   <arg name="property_name" type="s" direction="in"/>
   <arg name="value" type="v" direction="out"/>
  </method>
  <method name="GetAll">
   <arg name="interface_name" type="s" direction="in"/>
   <arg name="props" type="a{{sv}}" direction="out"/>
  </method>
  <method name="Set">
   <arg name="interface_name" type="s" direction="in"/>
   <arg name="property_name" type="s" direction="in"/>
   <arg name="value" type="v" direction="in"/>
  </method>
  <signal name="PropertiesChanged">
   <arg name="interface_name" type="s"/>
   <arg name="changed_properties" type="a{{sv}}"/>
   <arg name="invalidated_properties" type="as"/>
  </signal>
 </interface>"#
        ),
    );
}

fn object_manager(xml: &mut String) {
    put(
        xml,
        format_args!(
            r#" <interface name="{OBJECT_MANAGER}">
  <method name="GetManagedObjects">
   <arg name="objects" type="a{{oa{{sa{{sv}}}}}}" direction="out"/>
  </method>
  <signal name="InterfacesAdded">
   <arg name="object" type="o"/>
   <arg name="interfaces" type="a{{sa{{sv}}}}"/>
  </signal>
  <signal name="InterfacesRemoved">
   <arg name="object" type="o"/>
   <arg name="interfaces" type="as"/>
  </signal>
 </interface>"#
        ),
    );
}
