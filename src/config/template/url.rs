//! URLs with variables: encoded, and fixed to one host and one depth of path.

use url::Url;

use super::{Encode, Refused, Template, Variable};
use crate::config::BuildError;

/// An absolute URL with variables in its path and query, never in scheme, host or port.
#[derive(Debug, Clone)]
pub struct UrlTemplate<V> {
    path: Template<V>,
    query: Template<V>,
    origin: String,
}

impl<V: Variable> UrlTemplate<V> {
    /// Parses the URL of the setting `field`.
    ///
    /// # Errors
    /// Not http(s), a user or fragment in it, a variable in the host, or what [`Template::parse`] refuses.
    pub fn parse(text: &str, field: &str) -> Result<Self, BuildError> {
        let fail = |rule: &str| BuildError::new(field, rule);
        let (scheme, rest) = text.split_once("://").ok_or_else(|| fail("must be an absolute http or https url"))?;
        if !matches!(scheme, "http" | "https") {
            return Err(fail("must be an absolute http or https url"));
        }
        if rest.contains('#') {
            return Err(fail("must not carry a fragment"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains(['{', '}']) {
            return Err(fail("must not have a variable in its host"));
        }
        if authority.contains('@') {
            return Err(fail("must not carry a user or password; use auth"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let template = Self {
            path: Template::parse(path, field)?,
            query: Template::parse(query, field)?,
            origin: format!("{scheme}://{authority}"),
        };
        template.render(&|_| Ok("x".to_owned())).map_err(|refused| fail(&refused.to_string()))?;
        Url::parse(&template.origin).map_err(|_| fail("must be an absolute http or https url"))?;
        Ok(template)
    }
}

impl<V> UrlTemplate<V> {
    /// The variables in its path.
    pub fn path_variables(&self) -> impl Iterator<Item = &V> {
        self.path.variables()
    }

    /// All variables.
    pub fn variables(&self) -> impl Iterator<Item = &V> {
        self.path.variables().chain(self.query.variables())
    }

    /// Fills it.
    ///
    /// # Errors
    /// What `value` refuses, and a value that would be read as `.` or `..` in the path.
    pub fn render(&self, value: &dyn Fn(&V) -> Result<String, Refused>) -> Result<Url, Refused> {
        let path = self.path.render(Encode::Percent, value)?;
        if path.split(['/', '\\']).any(|segment| {
            let segment = segment.to_ascii_lowercase().replace("%2e", ".");
            segment == "." || segment == ".."
        }) {
            return Err(Refused::Path);
        }
        let query = self.query.render(Encode::Percent, value)?;
        let mark = if query.is_empty() { "" } else { "?" };
        Url::parse(&format!("{}{path}{mark}{query}", self.origin)).map_err(|_| Refused::Path)
    }
}
