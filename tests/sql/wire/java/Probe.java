import java.sql.*;
/** What DBeaver, Metabase and other tools of Java ask by JDBC, as lines. Arguments: port, database. */
public class Probe {
  public static void main(String[] a) throws Exception {
    try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + a[0] + "/" + a[1], System.getenv("PGUSER"), System.getenv("PGPASSWORD"))) {
      DatabaseMetaData m = c.getMetaData();
      System.out.println(m.getDatabaseProductVersion());
      try (ResultSet r = m.getCatalogs()) { while (r.next()) System.out.println("catalog " + r.getString(1)); }
      try (ResultSet r = m.getSchemas()) { while (r.next()) System.out.println("schema " + r.getString(1)); }
      try (ResultSet r = m.getTables(null, null, "%", new String[]{"TABLE"})) { while (r.next()) System.out.println("table " + r.getString(2) + "." + r.getString(3) + " " + r.getString(5)); }
      try (ResultSet r = m.getColumns(null, a[1], "patient", "%")) { while (r.next()) System.out.println("column " + r.getString(4) + " " + r.getString(6) + " " + r.getInt(7) + " " + r.getInt(9)); }
      try (ResultSet r = m.getPrimaryKeys(null, a[1], "patient")) { while (r.next()) System.out.println("key " + r.getString(4)); }
      try (ResultSet r = m.getImportedKeys(null, a[1], "patient")) { while (r.next()) System.out.println("imported"); }
      try (ResultSet r = m.getIndexInfo(null, a[1], "patient", false, true)) { while (r.next()) System.out.println("index"); }
      try (ResultSet r = m.getTypeInfo()) { int n = 0; while (r.next()) n++; System.out.println("types " + (n > 10)); }
      try (ResultSet r = m.getProcedures(null, null, "%")) { while (r.next()) System.out.println("procedure"); }
      try (ResultSet r = m.getTablePrivileges(null, a[1], "%")) { while (r.next()) System.out.println("privilege " + r.getString(6)); }
      for (int turn = 0; turn < 7; turn++)
        try (PreparedStatement s = c.prepareStatement("SELECT p.name, sum(v.cost) AS cost, max(p.born) AS born, max(p.seen) AS seen, bool_or(p.insured) AS insured FROM patient p LEFT JOIN visit v ON v.patient = p.id WHERE p.id <= ? AND (p.born > ? OR p.born IS NULL) GROUP BY p.name ORDER BY p.name NULLS LAST")) {
          s.setInt(1, 3); s.setDate(2, Date.valueOf("1970-01-01"));
          try (ResultSet r = s.executeQuery()) { while (r.next()) if (turn == 6) System.out.println("row " + r.getString(1) + " " + r.getBigDecimal(2) + " " + r.getDate(3) + " " + (r.getTimestamp(4) == null ? null : r.getTimestamp(4).toInstant()) + " " + r.getObject(5)); }
        }
      c.setAutoCommit(false);
      try (Statement s = c.createStatement()) {
        s.setFetchSize(2);
        try (ResultSet r = s.executeQuery("SELECT id FROM patient ORDER BY id")) { int n = 0; while (r.next()) n++; System.out.println("fetched " + n); }
        try { s.executeUpdate("DELETE FROM patient"); } catch (SQLException e) { System.out.println("refused " + e.getSQLState()); }
      }
      c.rollback();
    }
  }
}
