"""Statements that tools send when they connect and look for tables, by tool.

They are those of the tools' public source, of November 2026, with a table of these tests in place
of placeholders; long lists are shortened. What an expression does is in the tool's own words, since
that is what has to be answered.
"""

from __future__ import annotations

GRAFANA_PATH = """quote_ident(table_schema) IN (
  SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
  FROM generate_series(
      array_lower(string_to_array(current_setting('search_path'),','),1),
      array_upper(string_to_array(current_setting('search_path'),','),1)
    ) as i,
    string_to_array(current_setting('search_path'),',') s
)"""

TOOLS: dict[str, list[str]] = {
    "jdbc": [
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        """SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid
        WHERE t.oid = 1034""",
        """SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid
        FROM pg_catalog.pg_type LEFT JOIN (
          select ns.oid as nspoid, ns.nspname, r.r from pg_namespace as ns join (
            select s.r, (current_schemas(false))[s.r] as nspname
            from generate_series(1, array_upper(current_schemas(false), 1)) as s(r)
          ) as r using ( nspname )
        ) as sp ON sp.nspoid = typnamespace
        WHERE pg_type.oid = 1043 ORDER BY sp.r, pg_type.oid DESC""",
    ],
    "DBeaver": [
        "SET application_name = 'DBeaver 25.1.5 - Main <clinic>'",
        "SELECT current_schema(),session_user",
        """SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n
        LEFT OUTER JOIN pg_catalog.pg_description d
          ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass
        ORDER BY nspname""",
        "SHOW search_path",
        "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datname='clinic'",
        "SELECT * FROM pg_catalog.pg_settings where name='standard_conforming_strings'",
        """SELECT string_agg(word, ',' ) from pg_catalog.pg_get_keywords()
        where word <> ALL ('{a,abs,absolute,zone}'::text[])""",
        "SELECT version()",
        "SELECT * FROM pg_catalog.pg_enum WHERE 1<>1 LIMIT 1",
        "SELECT reltype FROM pg_catalog.pg_class WHERE 1<>1 LIMIT 1",
        """SELECT t.oid,t.*,c.relkind,
          format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
        FROM pg_catalog.pg_type t
        LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem
        LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid
        LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid
        WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c')
          AND (et.typcategory IS NULL OR et.typcategory <> 'C')""",
        """SELECT c.oid,c.*,d.description,
          pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
          pg_catalog.pg_get_partkeydef(c.oid) as partition_key
        FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d
          ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass
        WHERE c.relnamespace=16384 AND c.relkind not in ('i','I','c')""",
        """select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,
          pg_catalog.pg_relation_size(c.oid) as rel_size
        FROM pg_class c WHERE c.relnamespace=16384""",
        """SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,
          dsc.description,dep.objid
        FROM pg_catalog.pg_attribute a
        INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid)
        LEFT OUTER JOIN pg_catalog.pg_attrdef ad
          ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum)
        LEFT OUTER JOIN pg_catalog.pg_description dsc
          ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid)
        LEFT OUTER JOIN pg_depend dep
          on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum
          and dep.classid = dep.refclassid
        WHERE NOT a.attisdropped AND c.oid=16385 ORDER BY a.attnum""",
        """SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,
          tc.relname as tabrelname,dsc.description,
          pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,
          pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,
          pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,
          pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans
        FROM pg_catalog.pg_index i
        INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid
        INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid
        LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid
        WHERE i.indrelid=16385 ORDER BY tabrelname, c.relname""",
        """SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description,
          case when c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7)
            else null end consrc_copy
        FROM pg_catalog.pg_constraint c
        INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid
        LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid
        LEFT OUTER JOIN pg_catalog.pg_description d
          ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass
        WHERE c.conrelid=16385 ORDER BY c.oid""",
    ],
    "Metabase": [
        "show timezone",
        """SELECT nspname, typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum e)""",
        """SELECT "n"."nspname" AS "schema", "c"."relname" AS "name",
          CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE'
            WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE'
            WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS "type",
          "d"."description" AS "description", "stat"."n_live_tup" AS "estimated_row_count"
        FROM "pg_catalog"."pg_class" AS "c"
        INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid"
        LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid")
          AND ("d"."objsubid" = 0) AND ("d"."classoid" = 'pg_class'::regclass)
        LEFT JOIN "pg_stat_user_tables" AS "stat" ON ("n"."nspname" = "stat"."schemaname")
          AND ("c"."relname" = "stat"."relname")
        WHERE ("c"."relnamespace" = "n"."oid") AND ("n"."nspname" !~ '^pg_')
          AND ("n"."nspname" <> 'information_schema') AND c.relkind in ('r', 'p', 'v', 'f', 'm')
          AND ("n"."nspname" IN ('clinic'))
        ORDER BY "type" ASC, "schema" ASC, "name" ASC""",
        """with table_privileges as (
          select NULL as role, t.schemaname as schema, t.objectname as table,
            pg_catalog.has_any_column_privilege(current_user,
              '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"',
              'update') as update,
            pg_catalog.has_any_column_privilege(current_user,
              '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"',
              'select') as select,
            pg_catalog.has_table_privilege(current_user,
              '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"',
              'delete') as delete
          from (
            select schemaname, tablename as objectname from pg_catalog.pg_tables
            union
            select schemaname, viewname as objectname from pg_catalog.pg_views
            union
            select schemaname, matviewname as objectname from pg_catalog.pg_matviews
          ) t
          where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
            and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')
        )
        select t.* from table_privileges t where t.select or t.update or t.delete""",
        """SELECT "c"."column_name" AS "name",
          CASE WHEN "c"."udt_schema" IN ('public', 'pg_catalog') THEN FORMAT('%s', "c"."udt_name")
            ELSE FORMAT('"%s"."%s"', "c"."udt_schema", "c"."udt_name") END AS "database-type",
          "c"."ordinal_position" - 1 AS "database-position",
          "c"."table_schema" AS "table-schema", "c"."table_name" AS "table-name",
          "pk"."column_name" IS NOT NULL AS "pk?",
          COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST("c"."table_schema" AS TEXT),
            CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID), "c"."ordinal_position")
            AS "field-comment",
          (("column_default" IS NULL) OR (LOWER("column_default") = 'null'))
            AND ("is_nullable" = 'NO')
            AND NOT ((("column_default" IS NOT NULL) AND ("column_default" LIKE '%nextval(%'))
              OR ("is_identity" <> 'NO')) AS "database-required",
          (("column_default" IS NOT NULL) AND ("column_default" LIKE '%nextval(%'))
            OR ("is_identity" <> 'NO') AS "database-is-auto-increment"
        FROM "information_schema"."columns" AS "c"
        LEFT JOIN (
          SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name"
          FROM "information_schema"."table_constraints" AS "tc"
          INNER JOIN "information_schema"."key_column_usage" AS "kc"
            ON ("tc"."constraint_name" = "kc"."constraint_name")
            AND ("tc"."table_schema" = "kc"."table_schema")
            AND ("tc"."table_name" = "kc"."table_name")
          WHERE "tc"."constraint_type" = 'PRIMARY KEY'
        ) AS "pk" ON ("c"."table_schema" = "pk"."table_schema")
          AND ("c"."table_name" = "pk"."table_name") AND ("c"."column_name" = "pk"."column_name")
        WHERE c.table_schema !~ '^information_schema|catalog_history|pg_'
          AND ("c"."table_schema" IN ('clinic'))
        UNION ALL
        SELECT "pa"."attname" AS "name",
          CASE WHEN "ptn"."nspname" IN ('public', 'pg_catalog') THEN FORMAT('%s', "pt"."typname")
            ELSE FORMAT('"%s"."%s"', "ptn"."nspname", "pt"."typname") END AS "database-type",
          "pa"."attnum" - 1 AS "database-position", "pn"."nspname" AS "table-schema",
          "pc"."relname" AS "table-name", FALSE AS "pk?", NULL AS "field-comment",
          FALSE AS "database-required", FALSE AS "database-is-auto-increment"
        FROM "pg_catalog"."pg_class" AS "pc"
        INNER JOIN "pg_catalog"."pg_namespace" AS "pn" ON "pn"."oid" = "pc"."relnamespace"
        INNER JOIN "pg_catalog"."pg_attribute" AS "pa" ON "pa"."attrelid" = "pc"."oid"
        INNER JOIN "pg_catalog"."pg_type" AS "pt" ON "pt"."oid" = "pa"."atttypid"
        INNER JOIN "pg_catalog"."pg_namespace" AS "ptn" ON "ptn"."oid" = "pt"."typnamespace"
        WHERE ("pc"."relkind" = 'm') AND ("pa"."attnum" >= 1) AND ("pn"."nspname" IN ('clinic'))
        ORDER BY "table-schema" ASC, "table-name" ASC, "database-position" ASC""",
        """SELECT "fk_ns"."nspname" AS "fk-table-schema", "fk_table"."relname" AS "fk-table-name",
          "fk_column"."attname" AS "fk-column-name", "pk_ns"."nspname" AS "pk-table-schema",
          "pk_table"."relname" AS "pk-table-name", "pk_column"."attname" AS "pk-column-name"
        FROM "pg_constraint" AS "c"
        INNER JOIN "pg_class" AS "fk_table" ON "c"."conrelid" = "fk_table"."oid"
        INNER JOIN "pg_namespace" AS "fk_ns" ON "c"."connamespace" = "fk_ns"."oid"
        INNER JOIN "pg_attribute" AS "fk_column" ON "c"."conrelid" = "fk_column"."attrelid"
        INNER JOIN "pg_class" AS "pk_table" ON "c"."confrelid" = "pk_table"."oid"
        INNER JOIN "pg_namespace" AS "pk_ns" ON "pk_table"."relnamespace" = "pk_ns"."oid"
        INNER JOIN "pg_attribute" AS "pk_column" ON "c"."confrelid" = "pk_column"."attrelid"
        WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_'
          AND ("c"."contype" = 'f'::char)
          AND ("fk_column"."attnum" = ANY(c.conkey)) AND ("pk_column"."attnum" = ANY(c.confkey))
        ORDER BY "fk-table-schema" ASC, "fk-table-name" ASC""",
    ],
    "pgcli": [
        """SELECT n.nspname as schema, c.relname as name,
          pg_catalog.pg_get_userbyid(c.relowner) as owner
        FROM pg_catalog.pg_class c
        LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = ANY('{"r","p","v","m","S","f",""}')
          AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1, 2""",
        r"""SELECT d.datname as name, d.datcollate as collate, d.datctype as ctype,
          pg_catalog.array_to_string(d.datacl, E'\n') AS access_privileges
        FROM pg_catalog.pg_database d ORDER BY 1""",
    ],
    "ODBC": [
        """select 'clinic'::name as "PKTABLE_CAT", a2.attname as "PKCOLUMN_NAME",
          i::int2 as "KEY_SEQ"
        from ((select cn.oid, conrelid, conkey, confrelid, confkey,
            generate_series(array_lower(conkey, 1), array_upper(conkey, 1)) as i, conname
          from pg_catalog.pg_constraint cn, pg_catalog.pg_class c
          where contype = 'f' and confrelid = c.oid and relname = 'visit') ref
        inner join pg_catalog.pg_attribute a2
          on a2.attrelid = ref.confrelid and a2.attnum = confkey[i])
        order by ref.oid, ref.i""",
        """SELECT columns.column_name, information_schema.columns.data_type
        FROM information_schema.columns WHERE columns.table_name = 'patient'""",
    ],
    "Ruby": [
        """SELECT t.oid, t.typname, t.typelem, t.typdelim, ti.proname AS typinput
        FROM pg_type as t JOIN pg_proc as ti ON ti.oid = t.typinput""",
    ],
    "Rails": [
        "SET client_min_messages TO 'warning'",
        "SET standard_conforming_strings = on",
        "SET intervalstyle = iso_8601",
        "SET SESSION timezone TO 'UTC'",
        "SHOW max_identifier_length",
        """SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype,
        t.typbasetype FROM pg_type as t LEFT JOIN pg_range as r ON oid = rngtypid
        WHERE t.typname IN ('int2', 'text', 'interval') OR t.typtype IN ('r', 'e', 'd')""",
    ],
    "pgAdmin": [
        """SET DateStyle=ISO; SET client_min_messages=notice;
        SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings()
        WHERE name = 'bytea_output'; SET client_encoding='utf-8'""",
        "SET work_mem = '64MB'",
        "SET enable_seqscan TO off",
    ],
    "Superset": [
        "select pg_catalog.version()",
        "show standard_conforming_strings",
        "show transaction isolation level",
        'set search_path = "clinic"',
        "SELECT datname FROM pg_database WHERE datistemplate = false;",
        """SELECT nspname FROM pg_catalog.pg_namespace
        WHERE nspname NOT LIKE 'pg_%%' ORDER BY nspname""",
        "SELECT pg_backend_pid()",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid='999999'",
        """SELECT DATE_TRUNC('hour', seen) + INTERVAL '5 minutes' * FLOOR(EXTRACT(MINUTE FROM seen)
        / 5) AS seen, COUNT(*) AS n FROM clinic.patient
        WHERE seen >= TO_TIMESTAMP('1900-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
          AND born < TO_DATE('2100-01-01', 'YYYY-MM-DD')
        GROUP BY DATE_TRUNC('hour', seen) + INTERVAL '5 minutes' * FLOOR(EXTRACT(MINUTE FROM seen)
        / 5) LIMIT 50000""",
        """SELECT DATE_TRUNC('week', DATE_TRUNC('day', seen) + INTERVAL '1 day') + INTERVAL '-1 day'
        AS seen, count(DISTINCT name) FROM clinic.patient WHERE name ILIKE '%%a%%' AND insured IS
        true GROUP BY 1 ORDER BY 2 DESC LIMIT 50000""",
    ],
    "Sequelize": [
        "SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE",
        """SELECT c.column_name as "Field", (SELECT pgd.description
          FROM pg_catalog.pg_statio_all_tables AS st
          INNER JOIN pg_catalog.pg_description pgd on (pgd.objoid=st.relid)
          WHERE c.ordinal_position=pgd.objsubid AND c.table_name=st.relname) AS "Comment"
        FROM information_schema.columns c WHERE c.table_name = 'patient'""",
    ],
    "TypeORM": [
        "SELECT * FROM current_schema()",
        "SELECT datname FROM current_database() AS datname",
        """SELECT "table_name", obj_description((quote_ident("table_schema") || '.' ||
          quote_ident("table_name"))::regclass, 'pg_class') AS table_comment
        FROM "information_schema"."tables" WHERE "table_name" = 'patient'""",
        """SELECT columns.column_name, pg_catalog.col_description((quote_ident(table_catalog) || '.'
          || quote_ident(table_schema) || '.' || quote_ident(table_name))::regclass::oid,
          ordinal_position) AS description
        FROM "information_schema"."columns" WHERE "table_name" = 'visit'""",
    ],
    "Grafana": [
        "SELECT current_setting('server_version_num')::int/100 as version",
        "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
        """SELECT schema_name AS "name" FROM information_schema.schemata
        WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast')
        ORDER BY schema_name""",
        f"""SELECT CASE WHEN {GRAFANA_PATH} THEN quote_ident(table_name)
          ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
        FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
        ORDER BY CASE WHEN {GRAFANA_PATH} THEN 0 ELSE 1 END, 1""",
        f"""SELECT quote_ident(column_name) AS "column", data_type AS "type"
        FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('patient'),1) = 2
          THEN quote_ident(table_schema) = (parse_ident('patient'))[1]
            AND quote_ident(table_name) = (parse_ident('patient'))[2]
          ELSE quote_ident(table_name) = 'patient' AND {GRAFANA_PATH} END""",
    ],
    "dbt": [
        """select 'clinic' as database, tablename as name, schemaname as schema, 'table' as type
        from pg_tables where schemaname ilike 'clinic'
        union all
        select 'clinic' as database, viewname as name, schemaname as schema, 'view' as type
        from pg_views where schemaname ilike 'clinic'
        union all
        select 'clinic' as database, matviewname as name, schemaname as schema,
          'materialized_view' as type
        from pg_matviews where schemaname ilike 'clinic'""",
        "select distinct nspname from pg_namespace",
        "select count(*) from pg_namespace where nspname = 'clinic'",
        """select column_name, data_type, character_maximum_length, numeric_precision,
          numeric_scale
        from "clinic".INFORMATION_SCHEMA.columns
        where table_name = 'patient' and table_schema = 'clinic' order by ordinal_position""",
        """select grantee, privilege_type from "clinic".INFORMATION_SCHEMA.role_table_grants
        where grantor = current_role and grantee != current_role
          and table_schema = 'clinic' and table_name = 'patient'""",
        """select 'clinic' as table_database, sch.nspname as table_schema,
          tbl.relname as table_name,
          case tbl.relkind when 'v' then 'VIEW' else 'BASE TABLE' end as table_type,
          tbl_desc.description as table_comment, col.attname as column_name,
          col.attnum as column_index,
          pg_catalog.format_type(col.atttypid, col.atttypmod) as column_type,
          col_desc.description as column_comment, pg_get_userbyid(tbl.relowner) as table_owner
        from pg_catalog.pg_namespace sch
        join pg_catalog.pg_class tbl on tbl.relnamespace = sch.oid
        join pg_catalog.pg_attribute col on col.attrelid = tbl.oid
        left outer join pg_catalog.pg_description tbl_desc
          on (tbl_desc.objoid = tbl.oid and tbl_desc.objsubid = 0)
        left outer join pg_catalog.pg_description col_desc
          on (col_desc.objoid = tbl.oid and col_desc.objsubid = col.attnum)
        where sch.nspname != 'information_schema' and sch.nspname not like 'pg_%'
          and not pg_is_other_temp_schema(sch.oid) and tbl.relpersistence in ('p', 'u')
          and tbl.relkind in ('r', 'v', 'f', 'p', 'm') and col.attnum > 0
          and not col.attisdropped
        order by sch.nspname, tbl.relname, col.attnum""",
        """select i.relname as name, m.amname as method, ix.indisunique as "unique",
          array_to_string(array_agg(a.attname), ',') as column_names
        from pg_index ix join pg_class i on i.oid = ix.indexrelid
        join pg_am m on m.oid=i.relam join pg_class t on t.oid = ix.indrelid
        join pg_namespace n on n.oid = t.relnamespace
        join pg_attribute a on a.attrelid = t.oid and a.attnum = ANY(ix.indkey)
        where t.relname = 'patient' and n.nspname = 'clinic' and t.relkind in ('r', 'm')
        group by 1, 2, 3 order by 1, 2, 3""",
    ],
    "DuckDB": [
        """SELECT oid, nspname FROM pg_namespace ORDER BY oid""",
        """SELECT pg_namespace.oid AS namespace_id, relname, relpages, attname,
          pg_type.typname type_name, atttypmod type_modifier, pg_attribute.attndims ndim,
          attnum, pg_attribute.attnotnull AS notnull, NULL constraint_id,
          NULL constraint_type, NULL constraint_key
        FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid
        JOIN pg_attribute ON pg_class.oid=pg_attribute.attrelid
        JOIN pg_type ON atttypid=pg_type.oid
        WHERE attnum > 0 AND relkind IN ('r', 'v', 'm', 'f', 'p')
        UNION ALL
        SELECT pg_namespace.oid AS namespace_id, relname, NULL relpages, NULL attname,
          NULL type_name, NULL type_modifier, NULL ndim, NULL attnum, NULL AS notnull,
          pg_constraint.oid AS constraint_id, contype AS constraint_type,
          conkey AS constraint_key
        FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid
        JOIN pg_constraint ON (pg_class.oid=pg_constraint.conrelid)
        WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND contype IN ('p', 'u')
        ORDER BY namespace_id, relname, attnum, constraint_id""",
        """SELECT n.oid, enumtypid, typname, enumlabel FROM pg_enum e
        JOIN pg_type t ON e.enumtypid = t.oid JOIN pg_namespace AS n ON (typnamespace=n.oid)
        ORDER BY n.oid, enumtypid, enumsortorder""",
        """SELECT n.oid, t.typrelid AS id, t.typname as type, pg_attribute.attname, sub_type.typname
        FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        JOIN pg_class ON pg_class.oid = t.typrelid
        JOIN pg_attribute ON attrelid=t.typrelid
        JOIN pg_type sub_type ON (pg_attribute.atttypid=sub_type.oid)
        WHERE pg_class.relkind = 'c' AND t.typtype='c'
        ORDER BY n.oid, t.oid, attrelid, attnum""",
        """SELECT pg_namespace.oid, tablename, indexname FROM pg_indexes
        JOIN pg_namespace ON (schemaname=nspname) ORDER BY pg_namespace.oid""",
    ],
}
