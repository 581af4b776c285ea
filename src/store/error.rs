//! What can go wrong between the ledger and the process.

use uuid::Uuid;

/// A statement failed, or a row says something that it must not.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Postgres or the connection.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// A row holds what this version cannot read.
    #[error("{table}.{column} of {row} is not readable: {why}")]
    Inconsistent {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// The row.
        row: Uuid,
        /// Why.
        why: String,
    },
    /// A guarded write touched another number of rows: somebody moved first.
    #[error("{what} of {row} was moved by somebody else")]
    Moved {
        /// What was to be written.
        what: &'static str,
        /// The row.
        row: Uuid,
    },
    /// The move needs an effect that another intent has taken meanwhile.
    #[error("the effect of {row} was re-requested as {holder}")]
    ReRequested {
        /// The intent.
        row: Uuid,
        /// Who holds the effect now.
        holder: Uuid,
    },
}

impl StoreError {
    /// SQLSTATE, where Postgres answered with one.
    pub fn sqlstate(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Database(sqlx::Error::Database(e)) => e.code(),
            Self::Database(_) | Self::Inconsistent { .. } | Self::Moved { .. } | Self::ReRequested { .. } => None,
        }
    }

    /// The server only reads: a standby, or a primary that was demoted.
    pub fn is_read_only(&self) -> bool {
        self.sqlstate().is_some_and(|code| matches!(&*code, "25006" | "55000"))
    }

    /// Serialization failure or deadlock: the transaction may be run again, no effect was made by it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(e)) => {
                matches!(e.code().as_deref(), Some("40001" | "40P01" | "55P03" | "57014"))
            }
            Self::Moved { .. } => true,
            Self::Database(_) | Self::Inconsistent { .. } | Self::ReRequested { .. } => false,
        }
    }
}

impl StoreError {
    /// It is about one row, so a loop may go on with the next; the database itself answers.
    pub fn spares_others(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(e)) => {
                // Connection, resources, operator: the next statement fares no better.
                !e.code().is_some_and(|code| ["08", "53", "57P", "58"].iter().any(|class| code.starts_with(class)))
            }
            Self::Moved { .. } | Self::Inconsistent { .. } | Self::ReRequested { .. } => true,
            Self::Database(_) => false,
        }
    }
}

/// Exactly one row must have been written.
pub(crate) fn one(rows: u64, what: &'static str, row: Uuid) -> Result<(), StoreError> {
    if rows == 1 { Ok(()) } else { Err(StoreError::Moved { what, row }) }
}
