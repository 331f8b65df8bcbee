CREATE TABLE "Realm_Cursor" (
	"Realm" text collate "C" PRIMARY KEY NOT NULL,
	"Position" timestamp with time zone DEFAULT now() NOT NULL,
	"SweptAt" timestamp with time zone,
	"Events" integer DEFAULT 0 NOT NULL,
	"Incomplete" text
);
--> statement-breakpoint
CREATE INDEX "Realm_Cursor_position" ON "Realm_Cursor" USING btree ("Position");